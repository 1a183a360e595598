"""Data: digits inside the package, and loaders for data sets that the user has."""

from proofmap.data.digits import digits
from proofmap.data.idx import read_idx
from proofmap.data.mnist import mnist

__all__ = ["digits", "mnist", "read_idx"]
