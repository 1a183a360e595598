"""Data: digits inside the package, and loaders for the user's data sets and pictures.

>>> len(pm.data.digits()[1])
300
"""

from proofmap.data.cifar10_files import cifar10
from proofmap.data.digits import digits
from proofmap.data.idx import read_idx
from proofmap.data.images import Pictures, images
from proofmap.data.mnist_files import mnist

__all__ = ["Pictures", "cifar10", "digits", "images", "mnist", "read_idx"]
