"""Proofmap: explanations of neural network decisions, with proofs.

Importing the package loads nothing else. Its public names, listed in `proofmap.api`, are loaded with torch when one of
them is first used, so that the command line's help starts fast.
"""

from __future__ import annotations

import logging
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless the user configures logging

if TYPE_CHECKING:
    from proofmap.api import *  # noqa: F403
    from proofmap.api import __all__ as __all__
else:  # hidden from type checkers, so that they report unknown names

    def __getattr__(name: str) -> Any:
        """Import a module of the package, or `proofmap.api` for one of its names."""
        hidden = name.startswith("__") and name != "__all__"  # tools look for these in every module
        if not hidden and name != "explain" and find_spec(f"{__name__}.{name}") is not None:  # explain.py warns
            return import_module(f"{__name__}.{name}")
        api = None if hidden else import_module(f"{__name__}.api")
        if not hasattr(api, name):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(api, name)  # found directly the next time
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted([*__getattr__("__all__"), "__version__"])
