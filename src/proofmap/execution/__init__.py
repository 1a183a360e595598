"""Running a network at many points that differ little: what a change reaches is computed, the rest is kept.

`members` has samples of a ball and of every member of its family, which others ask for. `incremental` carries the
differences that a group's return makes, in windows (`laid`) that `cone` finds; `clamped` is its most frequent step.
"""

from proofmap.execution.family_sampler import Sampler, check_precision
from proofmap.execution.incremental import base_elements

__all__ = ["Sampler", "base_elements", "check_precision"]
