"""Compare a certificate with the bound of its explanation, and word the difference if the certificate is weaker."""

from dataclasses import dataclass

from proofmap.runtime.outward_numbers import format_overlap

_GAP_TOLERANCE = 0.01  # share of AO(B) minus the overlap at x: stored slopes have 8 bits, and intervals 16
_VALUE_TOLERANCE = 0.001  # share of the overlaps: claims are rounded up


@dataclass(frozen=True)
class Explained:
    """The bound AO(B) <= full of an explanation.

    nominal: the overlap at x itself. rigorous: whether the bound covers rounding errors of float32.
    """

    full: float
    nominal: float
    rigorous: bool

    @property
    def enough(self) -> float:
        """The largest bound of a certificate that counts as equally strong: `full` plus a tolerance.

        The tolerance is 1 % of full - nominal, plus 0.1 % of the larger magnitude of both.
        """
        size = max(abs(self.full), abs(self.nominal))
        return self.full + _GAP_TOLERANCE * max(0.0, self.full - self.nominal) + _VALUE_TOLERANCE * size

    def met(self, full: float, reals: float) -> bool:
        """Return whether a certificate with AO(B) <= full in float32 and <= reals over the reals is strong enough."""
        return (full if self.rigorous else reals) <= self.enough and (full < 0 or self.full >= 0)

    def shortfall(self, full: float, reals: float) -> str | None:
        """Return a sentence with both bounds if a certificate is weaker."""
        if self.met(full, reals):
            return None
        lost = ", and decides nothing" if full >= 0 > self.full else ""
        covered = "" if self.rigorous else ", where floating-point rounding is not covered"
        return (
            "the certificate is weaker than the explanation: it claims AO(B) <= "
            f"{format_overlap(full, 'certified')}{lost}; the explanation proved AO(B) <= "
            f"{format_overlap(self.full, 'certified')}{covered}"
        )


@dataclass(frozen=True)
class ExplainedSet(Explained):
    """The bound of a sufficient set: below its limit on the ball of the free groups."""

    limit: float = 0.0

    def met(self, full: float, reals: float) -> bool:
        """Return whether the certificate proves the free groups too."""
        return (full if self.rigorous else reals) < self.limit


@dataclass(frozen=True)
class ExplainedSize(ExplainedSet):
    """The least number of groups that have to change: `least` by the explanation, `stated` by the certificate."""

    least: int = 1
    stated: int = 1

    def shortfall(self, full: float, reals: float) -> str | None:
        """Return a sentence with both numbers if the certificate states fewer groups."""
        if self.stated >= self.least:
            return None
        return (
            f"the certificate is weaker than the explanation: it proves that at least {self.stated} groups have to "
            f"change, and the explanation {self.least}"
        )
