"""Sparseness: the Gini index of absolute attributions.

Chalasani et al. 2020, "Concise explanations of neural networks using adversarial training".
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from proofmap.inputs.array_types import Maps
from proofmap.inputs.groups import Groups, pixels
from proofmap.metrics.metric import ByPreset, Case, Metric, Presets, table
from proofmap.metrics.validation import check_groups
from proofmap.metrics.variables import Entries, Variables
from proofmap.settings import count


@dataclass(frozen=True, eq=False)
class Sparseness(Metric[Maps]):
    """The Gini index of the sorted absolute attributions a_1 <= ... <= a_G of the variables.

        Σ_i (2 i - G - 1) a_i / (G Σ_i a_i),

    It is 0 if all are equal, 1 - 1 / G if only one is not 0, and 0 for a map of zeros. Higher is better: the map is
    more concise. It does not show whether the map is right. Scaling a map does not change the value, but a shift does.

    groups: the variables; the attribution of a variable is the sum of absolute values over its entries. By preset:

        paper    pixels
        quantus  each entry

    >>> pm.metrics.Sparseness()(model, x, None, torch.ones_like(x))        # all equal
    tensor([0., 0.])
    """

    name: ClassVar[str] = "sparseness"
    label: ClassVar[str] = "Sparseness"
    higher_is_better: ClassVar[bool] = True
    presets: ClassVar[Presets] = table("groups", paper=(pixels(),), quantus=(Entries(),))

    preset: str = "paper"
    _: KW_ONLY
    groups: ByPreset[Groups] = ByPreset(check_groups)
    batch: int | None = count(None)

    def _values(self, case: Case) -> Tensor:
        variables = Variables.of(case.x, self.groups)
        # (N, G); variables that a sample lacks are 0 and come first
        rising = variables.sums(case.subject.abs()).sort(dim=1).values
        lacking = variables.most - variables.counts[:, None]
        place = torch.arange(1, variables.most + 1, device=rising.device) - lacking  # (1 or N, G)
        many = variables.counts.to(rising)
        weighted, whole = ((2 * place - many[:, None] - 1) * rising).sum(1), rising.sum(1)
        return torch.where(whole > 0, weighted / (many * whole.clamp(min=torch.finfo(whole.dtype).tiny)), 0.0).to(
            case.x.dtype
        )
