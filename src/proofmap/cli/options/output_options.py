"""Options that name one output of a network, which is explained or verified instead of the decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from proofmap.cli.options import option_values as texts
from proofmap.cli.options.option_bundles import unset
from proofmap.errors import InputError

if TYPE_CHECKING:
    from proofmap.verify.objectives import Output


@dataclass(frozen=True)
class OutputOptions:
    """One output of the network, the words for it, and the direction of its change."""

    output: Annotated[
        str | None,
        unset(
            "One output instead of the decision, as of a regression network: --output 0. For outputs of any shape an "
            "index such as 1,10,20, or a region such as 1,10:20,:, whose mean is taken."
        ),
        texts.Check(texts.output),
    ] = None
    direction: Annotated[
        str | None,
        unset("With --output: up, down or both: --direction up. By default both."),
        texts.one_of(("up", "down", "both"), "--direction"),
    ] = None
    unit: Annotated[str | None, unset("With --output: its unit: --unit mmHg")] = None
    output_name: Annotated[str | None, unset('With --output: what it is: --output-name "blood pressure"')] = None

    def objective(self, *, whole: bool = False) -> Output | None:
        """Return the output that the options name; None without --output.

        whole: without --output, the first output.
        """
        if self.output is None and not whole:
            given = {"--direction": self.direction, "--unit": self.unit, "--output-name": self.output_name}
            extra = next((name for name, value in given.items() if value is not None), None)
            if extra is not None:
                raise InputError(f"got {extra} without --output, expected the output that it is about: --output 0")
            return None
        from proofmap.verify.objectives import Output, read_places

        places = read_places("0" if self.output is None else self.output)
        return Output(places, self.direction or "both", name=self.output_name, unit=self.unit or "")  # type: ignore[arg-type]
