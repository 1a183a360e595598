"""The bound that an explanation proved: a certificate that is weaker says so, with both numbers."""

from __future__ import annotations

from dataclasses import dataclass

from proofmap.runtime.outward_numbers import rounded

__all__ = ["Explained"]

_OF_LOOSENESS = 0.01  # of what AO(B) is above the overlap at x: stored slopes and intervals have 8 and 16 bits
_OF_VALUE = 0.001  # of the overlaps themselves: claims are rounded up


@dataclass(frozen=True)
class Explained:
    """What an explanation proved of AO(B).

    full: AO(B) is at most this. nominal: the overlap at x itself. rigorous: whether float32's roundings are covered.
    """

    full: float
    nominal: float
    rigorous: bool

    @property
    def enough(self) -> float:
        """A certificate of AO(B) <= this is no weaker: `full`, and a little room.

        The room is 1 % of full - nominal, and 0.1 % of the larger magnitude of both.
        """
        size = max(abs(self.full), abs(self.nominal))
        return self.full + _OF_LOOSENESS * max(0.0, self.full - self.nominal) + _OF_VALUE * size

    def met(self, full: float, reals: float) -> bool:
        """Whether a certificate is no weaker that claims AO(B) <= full in float32, and <= reals over the reals."""
        return (full if self.rigorous else reals) <= self.enough and (full < 0 or self.full >= 0)

    def shortfall(self, full: float, reals: float) -> str | None:
        """One sentence with both numbers where a certificate is weaker."""
        if self.met(full, reals):
            return None
        lost = ", and decides nothing" if full >= 0 > self.full else ""
        covered = "" if self.rigorous else ", where floating-point rounding is not covered"
        return (
            f"the certificate is weaker than the explanation: it claims AO(B) <= {rounded(full, 'certified')}{lost}; "
            f"the explanation proved AO(B) <= {rounded(self.full, 'certified')}{covered}"
        )
