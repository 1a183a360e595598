"""Tables as pandas frames, where pandas is installed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from proofmap.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["frame"]


def frame(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> DataFrame:
    """Build a pandas data frame from column names and rows."""
    try:
        import pandas
    except ImportError as error:
        raise InputError("a frame needs pandas, which is not installed: pip install 'proofmap[export]'") from error
    return pandas.DataFrame(list(rows), columns=list(head))
