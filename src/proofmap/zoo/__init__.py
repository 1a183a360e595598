"""Models: the architectures of the paper, with trained weights where the package carries them."""

from proofmap.zoo.mnist import mnist_mlp

__all__ = ["mnist_mlp"]
