"""Running a network at many points that differ little: what a change reaches is computed, the rest is kept.

members      samples of a ball and of every member of its family: what others ask for
incremental  the differences that a group's return makes, node by node
laid         windows of maps as tensors
cone         which windows those are: geometry alone
clamped      the most frequent nonlinear step, in one kernel
"""

from proofmap.execution.incremental import base_elements
from proofmap.execution.members import Sampler, check_precision

__all__ = ["Sampler", "base_elements", "check_precision"]
