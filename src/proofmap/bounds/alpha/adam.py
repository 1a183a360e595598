"""Adam (Kingma and Ba 2015): the direction of a step from decaying means of the gradients and of their squares."""

import torch
from torch import Tensor


class Adam:
    """The state of Adam for one tensor of parameters."""

    def __init__(self, like: Tensor, mean_decay: float, square_decay: float) -> None:
        self._decays = mean_decay, square_decay
        self._mean, self._square = torch.zeros_like(like), torch.zeros_like(like)
        self._mean_start, self._square_start = 1.0, 1.0  # the weights that the initial zeros still have

    def direction(self, gradient: Tensor, noise: Tensor | float) -> Tensor:
        """Take up a gradient, and return its step in units of the step size. Gradients below `noise` hardly move."""
        mean_decay, square_decay = self._decays
        self._mean_start, self._square_start = self._mean_start * mean_decay, self._square_start * square_decay
        self._mean.lerp_(gradient, 1 - mean_decay)
        self._square.lerp_(gradient * gradient, 1 - square_decay)
        size = (self._square / (1 - self._square_start)).sqrt_().add_(noise)
        return self._mean / size.mul_(1 - self._mean_start)
