"""Captum's call for inputs with noise: `ClampedInputs` clamps them to the domain before an explainer gets them."""

from dataclasses import dataclass

from torch import Tensor

from proofmap.errors import InputError
from proofmap.explainers.attribution.captum_call import CaptumCall, CaptumSettings
from proofmap.explainers.explainer import Explainer
from proofmap.graph import Network
from proofmap.graph.input_tensor import as_samples
from proofmap.inputs.array_types import Samples, Target
from proofmap.inputs.ball import Ball


@dataclass(frozen=True, eq=False)
class ClampedInputs(CaptumCall):
    """An explainer whose inputs are clamped to the domain of its ball, for methods that add noise.

    Captum's NoiseTunnel and sensitivity_max, and Quantus' MaxSensitivity, add noise to inputs. The noise leaves a
    domain such as (0, 1), and an explainer refuses such inputs, because nothing is proven about them. Here each noisy
    input is replaced by the nearest input of the domain, so the noise is smaller at the ends of the domain.

    explainer: any explainer whose domain has no one-hot blocks. Without a domain, nothing is clamped.

    >>> from captum.attr import NoiseTunnel
    >>> noisy = NoiseTunnel(pm.explainers.ClampedInputs(pm.EVA(model, ball, groups=cells)))
    >>> noisy.attribute(x, nt_samples=2, stdevs=0.1, target=3).shape
    torch.Size([2, 1, 28, 28])
    """

    explainer: Explainer

    def __post_init__(self) -> None:
        """Refuse other objects, and one-hot blocks."""
        if not isinstance(self.explainer, Explainer):
            raise InputError(
                f"ClampedInputs got {type(self.explainer).__name__}, expected an explainer such as pm.EVA(model, ball)"
            )
        ball = self.explainer.ball
        if isinstance(ball, tuple):
            raise InputError(f"ClampedInputs got an explainer with {len(ball)} balls, expected one of a single input")
        if ball is not None and ball.one_hot:
            raise InputError(
                "ClampedInputs got a domain with one-hot blocks, expected numbers only: noise is no category"
            )

    def _attributions(
        self, inputs: Samples | tuple[Samples, ...], target: Target | list[int], how: CaptumSettings
    ) -> Tensor | tuple[Tensor, ...]:
        clamped = tuple(map(self._clamped, inputs)) if isinstance(inputs, tuple) else self._clamped(inputs)
        return self.explainer._attributions(clamped, target, how)

    def _clamped(self, inputs: Samples) -> Tensor:
        x = as_samples(inputs, self.explainer.model).detach()
        ball = self.explainer.ball
        return x.clamp(*ball.limits(x)) if isinstance(ball, Ball) else x

    @property
    def forward_func(self) -> Network:
        """The model, under the name that Captum's methods expect."""
        return self.explainer.model
