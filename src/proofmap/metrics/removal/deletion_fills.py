"""Deletion and Insertion with a mean colour or a blurred image as the baseline.

Each baseline favours some maps: noise is far from all images, a mean colour is near plain regions, and a blurred image
differs only at edges. A map that is best with only one baseline fits the baseline, not the network.
"""

from proofmap.metrics.removal.deletion_insertion import Deletion, Insertion
from proofmap.metrics.removal.fill_values import Blur, Mean


class DeletionMean(Deletion, fill=Mean()):
    """`Deletion` with the mean colour of the image as the baseline; lower is better.

    >>> pm.metrics.DeletionMean()(model, x, None, maps).shape
    torch.Size([2])
    """


class DeletionBlur(Deletion, fill=Blur()):
    """`Deletion` with the blurred image as the baseline; lower is better.

    >>> pm.metrics.DeletionBlur()(model, x, None, maps).shape
    torch.Size([2])
    """


class InsertionMean(Insertion, fill=Mean()):
    """`Insertion` into an image of the mean colour; higher is better.

    >>> pm.metrics.InsertionMean()(model, x, None, maps).shape
    torch.Size([2])
    """


class InsertionBlur(Insertion, fill=Blur()):
    """`Insertion` into the blurred image; higher is better.

    >>> pm.metrics.InsertionBlur()(model, x, None, maps).shape
    torch.Size([2])
    """
