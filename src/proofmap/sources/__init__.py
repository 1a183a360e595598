"""Readers for the user's files: models, pictures, arrays, tables and VNN-LIB specifications.

No file is executed, except a Python file that the user names as the model.
"""

from proofmap.sources.confirm import Rerun, rerun
from proofmap.sources.named_model import Model, read_model
from proofmap.sources.preparation import Preparation, preparation_of
from proofmap.sources.samples import Files, Samples, open_samples
from proofmap.sources.several_files import SeveralFiles, open_inputs
from proofmap.sources.vnnlib.specification import Box, check_shape, read_box, read_declared, read_specification

__all__ = [
    "Box", "Files", "Model", "Preparation", "Rerun", "Samples", "SeveralFiles", "check_shape", "open_inputs",
    "open_samples", "preparation_of", "read_box", "read_declared", "read_model", "read_specification", "rerun",
]  # fmt: skip
