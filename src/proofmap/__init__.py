"""Proofmap: what a neural network decided, and why, with proofs.

Importing the package loads nothing: its names, listed in `proofmap.api`, come with torch when one is asked for, so that
a command line's help need not wait for them.
"""

from __future__ import annotations

import logging
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())  # what is said is heard by those who ask for it

if TYPE_CHECKING:
    from proofmap.api import *  # noqa: F403
    from proofmap.api import __all__ as __all__
else:  # so that a name which is not there is one to type checkers too

    def __getattr__(name: str) -> Any:
        """A module of the package alone, or a name of `proofmap.api`, which brings all the others."""
        hidden = name.startswith("__") and name != "__all__"  # tools look for these, in every module
        if not hidden and find_spec(f"{__name__}.{name}") is not None:
            return import_module(f"{__name__}.{name}")
        api = None if hidden else import_module(f"{__name__}.api")
        if not hasattr(api, name):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(api, name)  # at once the next time
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted([*__getattr__("__all__"), "__version__"])
