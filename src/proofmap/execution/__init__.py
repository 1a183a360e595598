"""Incremental forward passes at many points that differ in few inputs: only the affected windows are recomputed.

`family_sampler` runs samples of a ball and of every member of its family, and is the entry point. `incremental`
propagates the differences that restoring a group makes, in windows (`map_windows`) that `cone` computes.
"""

from proofmap.execution.family_sampler import Sampler, check_precision
from proofmap.execution.incremental import base_elements

__all__ = ["Sampler", "base_elements", "check_precision"]
