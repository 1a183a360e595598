"""The former module `proofmap.explain`: `from proofmap.explain import EVA` warns, and `pm.explain` is the function.

Its names are in `proofmap.explainers` now. This file goes with version 0.3.
"""

import sys
import warnings

from proofmap.api import explain

warnings.warn(
    "proofmap.explain is the function pm.explain: import its other names from proofmap.explainers",
    DeprecationWarning,
    stacklevel=2,  # the line of the user
)
sys.modules[__name__] = explain  # type: ignore[assignment]
