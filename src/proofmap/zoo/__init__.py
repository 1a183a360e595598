"""Models: the architectures of the paper and a small vision transformer, most of them with trained weights.

>>> pm.zoo.mnist_mlp()(x).shape
torch.Size([2, 10])
"""

from proofmap.zoo.cifar_cnn import cifar_cnn
from proofmap.zoo.efficientnet import efficientnet_lite0
from proofmap.zoo.mnist_mlp import mnist_mlp
from proofmap.zoo.provable import cifar_provable, mnist_provable
from proofmap.zoo.vgg import vgg16
from proofmap.zoo.vit import cifar_vit

__all__ = ["cifar_cnn", "cifar_provable", "cifar_vit", "efficientnet_lite0", "mnist_mlp", "mnist_provable", "vgg16"]

UNTRAINED = frozenset({"vgg16"})  # the package has no weights for these models
