"""The answer of `pm.explain`: a map, a proof if there is one, and sentences with the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from proofmap.errors import ProofmapError
from proofmap.explainers.automatic.proof_choice import NOT_PROVEN
from proofmap.explainers.explanation import Explanation
from proofmap.text.notebook_html import picture_html
from proofmap.text.wording import around

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

    from proofmap.plots.figure_look import Number
    from proofmap.plots.figure_page import Picture


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """The answer of `pm.explain`: a map, a proof if there is one, and sentences that say what was done and why.

    map: an estimate of importance, not proven. proof: bounds of the decision over a ball, or None. said: the sentences.

    >>> answer = pm.explain(model, x, seconds=0.2)
    >>> isinstance(answer, pm.explainers.Answer), len(answer.said)
    (True, 3)
    """

    map: Explanation
    proof: Explanation | None
    said: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Answer, ...]:
        """The answer for each of several inputs, to plot one picture of each; the answer itself for one input."""
        maps = self.map.inputs
        if len(maps) == 1 and not self.map.input_roles:
            return (self,)
        proofs = (None,) * len(maps) if self.proof is None else self.proof.inputs
        return tuple(replace(self, map=map_, proof=proof) for map_, proof in zip(maps, proofs, strict=True))

    def __repr__(self) -> str:
        return "\n".join(self.said)

    def plot(
        self,
        class_names: Sequence[str] | None = None,
        *,
        tokens: Sequence[str] | Sequence[Sequence[str]] | None = None,
        ax: Axes | Iterable[Any] | None = None,
        cmap: str | Colormap | None = None,
        title: str | Sequence[str] | None = None,
        panels: str | Sequence[str] | None = None,
        mean: Number | None = None,
        std: Number | None = None,
    ) -> Picture:
        """Draw the map. Each sample has a title with the verdict of the proof and a subtitle that names the map.

        The options are those of `Explanation.plot`. `proof.plot()` draws the scores of the proof.
        """
        from proofmap.plots.explanation_figure import draw  # imports matplotlib, which takes a while
        from proofmap.plots.figure_look import Look
        from proofmap.plots.figure_page import Heading

        kind = f"Map: {self.map.method}, {around(self.map.settings)}. The map is an estimate, not a proof."
        headings = [Heading(self._verdict(k, class_names), kind) for k in range(len(self.map))]
        look = Look(ax, cmap, title, panels, mean, std)
        return draw(self.map, class_names=class_names, headings=headings, tokens=tokens, look=look)

    @cached_property
    def _png(self) -> bytes | None:
        """The figure for notebooks; None if it cannot be drawn, and then the sentences are shown alone."""
        try:
            return self.plot()._repr_png_()
        except ProofmapError:
            return None

    def _repr_html_(self) -> str:
        return picture_html(self._png, self.said)

    def _verdict(self, k: int, names: Sequence[str] | None) -> str:
        """Return the title of sample k: what is proven about it."""
        if self.proof is not None and _radius_of(self.proof, k) > 0:
            from proofmap.plots.figure_titles import title  # imports this package

            return title(self.proof, k, names)
        reason = self.said[1] if self.proof is None else f"{NOT_PROVEN}: no radius of this input could be proven."
        target = int(self.map.target[k])
        return f"{f'class {target}' if names is None else names[target]} · {reason}"


def _radius_of(e: Explanation, k: int) -> float:
    """Return the radius of the ball of sample k."""
    eps: Any = e.settings["eps"]
    return float(eps[k] if isinstance(eps, list) else eps)
