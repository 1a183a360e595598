"""The exceptions of Proofmap, as one tree.

ProofmapError
├── InputError              an invalid ball, input, mask, target or setting (also a ValueError)
│   ├── FlatPictureError    a grid over a flat sample
│   └── OutsideDomainError  a sample outside the domain of its ball
├── ModelError              a model or a graph that cannot be used
│   └── UnsupportedError    operations without a rule
├── FileError               a damaged file, or a file of another program
└── BoundError              no finite bound exists
    └── RoomError           no bound fits in the allowed memory

ProofmapWarning             the category of all warnings
"""

from __future__ import annotations

from collections.abc import Sequence


class ProofmapError(Exception):
    """The root: `except ProofmapError` catches everything that Proofmap raises on purpose.

    `arguments` names the arguments that would solve the problem, so that the command line can add its options.

    >>> issubclass(pm.InputError, pm.ProofmapError)
    True
    """

    def __init__(self, *args: object, arguments: Sequence[str] = ()) -> None:
        super().__init__(*args)
        self.arguments: tuple[str, ...] = tuple(arguments)


class InputError(ProofmapError, ValueError):
    """An invalid ball, input, mask, target or setting.

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
    """Operations without a rule: lists all of them as pairs (node, operation), and gives advice.

    >>> print(pm.UnsupportedError([("sort", "aten.sort")]))
    no rule for aten.sort (node 'sort'): add one under proofmap/rules
    """

    def __init__(self, nodes: Sequence[tuple[str, str]], advice: str = "add one under proofmap/rules") -> None:
        self.nodes: tuple[tuple[str, str], ...] = tuple(nodes)
        self.advice = advice
        missing = ", ".join(f"{operation} (node {node!r})" for node, operation in self.nodes)
        super().__init__(f"no rule for {missing}: {advice}")

    def __reduce__(self) -> tuple[type[UnsupportedError], tuple[tuple[tuple[str, str], ...], str]]:
        """Rebuild from the pairs, not from the message: errors are pickled between processes."""
        return type(self), (self.nodes, self.advice)


class OutsideDomainError(InputError):
    """A sample outside the domain of its ball."""


class FlatPictureError(InputError):
    """A grid was applied to a flat sample. `side` is the side of the square picture with as many numbers, or None."""

    def __init__(self, message: str, side: int | None) -> None:
        self.side = side
        super().__init__(message)

    def __reduce__(self) -> tuple[type[FlatPictureError], tuple[str, int | None]]:
        """Rebuild with the side: errors are pickled between processes."""
        return type(self), (str(self), self.side)


class FileError(ProofmapError):
    """A damaged file, or a file of another program.

    >>> try:
    ...     pm.Explanation.load("nowhere.proofmap")
    ... except pm.FileError:
    ...     print("cannot be read")
    cannot be read
    """


class BoundError(ProofmapError):
    """No finite bound exists, for instance for a logarithm over an interval that reaches 0.

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
    """No bound fits in the allowed memory."""


class RoundingError(BoundError):
    """Rounding errors leave no bound, for instance where they may carry a divisor to 0. The fast mode may have one.

    `reason` is the message without the advice to take the fast mode.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}, or rigorous=False, which does not cover rounding")


class ProofmapWarning(UserWarning):
    """The category of all warnings of Proofmap, so that one line disables them.

    >>> import warnings
    >>> warnings.filterwarnings("ignore", category=pm.ProofmapWarning)
    """


def in_bytes(size: float) -> str:
    """Format a number of bytes: 512 bytes, 1.5 kB, 20.0 MB, 3.2 GB."""
    for unit, one in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= one:
            return f"{size / one:.1f} {unit}"
    return f"{size:.0f} bytes"


def first_line(error: Exception) -> str:
    """Return the first line of another library's error, cut to 200 characters."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
