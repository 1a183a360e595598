"""What can go wrong, as one tree.

ProofmapError
├── InputError            a ball, an input, a mask, a target or a setting that makes no sense (also a ValueError)
│   └── FlatPictureError  a grid over a flat sample
├── ModelError            a model or a graph that cannot be used
│   └── UnsupportedError  operations without a rule
├── FileError             a damaged or a foreign file
└── BoundError            no finite bound exists
    └── RoomError         none that fits in the memory allowed

ProofmapWarning           beside it: what is said while work goes on
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "BoundError",
    "FileError",
    "FlatPictureError",
    "InputError",
    "ModelError",
    "ProofmapError",
    "ProofmapWarning",
    "RoomError",
    "UnsupportedError",
]


class ProofmapError(Exception):
    """The root: `except ProofmapError` catches everything that Proofmap raises on purpose.

    >>> issubclass(pm.InputError, pm.ProofmapError)
    True
    """


class InputError(ProofmapError, ValueError):
    """A ball, an input, a mask, a target or a setting that makes no sense.

    >>> try:
    ...     pm.Ball(-1.0)
    ... except pm.InputError as error:
    ...     print(error)
    Ball got eps=-1.0, expected finite radii >= 0: nothing is proven without one
    """


class ModelError(ProofmapError):
    """A model or a graph that cannot be used.

    >>> try:
    ...     pm.EVA(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout()), ball).explain(x)
    ... except pm.ModelError:
    ...     print("call model.eval() first")
    call model.eval() first
    """


class UnsupportedError(ModelError):
    """Operations without a rule: all of them at once, as pairs (node, operation), and what to do.

    >>> print(pm.UnsupportedError([("sort", "aten.sort")]))
    no rule for aten.sort (node 'sort'): add one under proofmap/rules
    """

    def __init__(self, nodes: Sequence[tuple[str, str]], advice: str = "add one under proofmap/rules") -> None:
        self.nodes: tuple[tuple[str, str], ...] = tuple(nodes)
        self.advice = advice
        missing = ", ".join(f"{operation} (node {node!r})" for node, operation in self.nodes)
        super().__init__(f"no rule for {missing}: {advice}")

    def __reduce__(self) -> tuple[type[UnsupportedError], tuple[tuple[tuple[str, str], ...], str]]:
        """Rebuild from the pairs, not from the message: errors travel between processes as pickles."""
        return type(self), (self.nodes, self.advice)


class FlatPictureError(InputError):
    """A grid was laid over a flat sample; `side` is that of the square picture which has as many numbers, or None."""

    def __init__(self, message: str, side: int | None) -> None:
        self.side = side
        super().__init__(message)

    def __reduce__(self) -> tuple[type[FlatPictureError], tuple[str, int | None]]:
        """Rebuild with the side: errors travel between processes as pickles."""
        return type(self), (str(self), self.side)


class FileError(ProofmapError):
    """A damaged or a foreign file.

    >>> try:
    ...     pm.Explanation.load("nowhere.proofmap")
    ... except pm.FileError:
    ...     print("cannot be read")
    cannot be read
    """


class BoundError(ProofmapError):
    """No finite bound exists: a logarithm over an interval that reaches 0.

    >>> class Logarithm(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x.flatten(1).log()
    >>> try:
    ...     pm.overlap(Logarithm(), x + 0.001, pm.Ball(0.01))
    ... except pm.BoundError:
    ...     print("no finite bound")
    no finite bound
    """


class RoomError(BoundError):
    """No bound fits in the memory allowed."""


class ProofmapWarning(UserWarning):
    """Every warning of Proofmap, so that one line switches them off.

    >>> import warnings
    >>> warnings.filterwarnings("ignore", category=pm.ProofmapWarning)
    """


def in_bytes(size: float) -> str:
    """A number of bytes for a sentence: 512 bytes, 1.5 kB, 20.0 MB, 3.2 GB."""
    for unit, one in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= one:
            return f"{size / one:.1f} {unit}"
    return f"{size:.0f} bytes"


def first_line(error: Exception) -> str:
    """What an error of somebody else's says, short enough for a sentence of ours."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
