"""Networks with feature maps larger than the receptive windows of their neurons: all operations on windows."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from proofmap.graph import Graph, trace
from tests.models import Apply, Inverted, Join, Residual

SHAPE = (2, 12, 11)


def _cat(a: Tensor, b: Tensor) -> Tensor:
    return torch.cat([a, b], 1)


BODIES: dict[str, Callable[[], list[nn.Module]]] = {
    "conv": lambda: [nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 3)],
    "padded": lambda: [nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 3, padding=(2, 1)), nn.Tanh()],
    "two linear in a row": lambda: [nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)],
    "stride": lambda: [nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 2, stride=(1, 2))],
    "dilation": lambda: [nn.Conv2d(2, 4, 3, dilation=2, padding=2), nn.ReLU(), nn.Conv2d(4, 3, 2, dilation=(1, 2))],
    "groups": lambda: [nn.Conv2d(2, 4, 3, groups=2), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1, groups=4)],
    "norm": lambda: [nn.BatchNorm2d(2), nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(4)],
    "entry by entry": lambda: [Apply(lambda x: x * torch.linspace(0.5, 2, 11) + 0.1), nn.Conv2d(2, 3, 3), nn.ReLU()],
    "masked": lambda: [
        Apply(lambda x: x.masked_fill(torch.linspace(-1, 1, 11) ** 2 < 0.2, 0.3)),
        nn.Conv2d(2, 3, 3),
        nn.ReLU(),
    ],
    "avg pool": lambda: [nn.Conv2d(2, 3, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(3, 3, 2)],
    "avg pool at borders": lambda: [
        nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
        nn.Conv2d(2, 3, 3, padding=1),
        nn.ReLU(),
        nn.AvgPool2d((2, 3), 1, (1, 1)),
    ],
    "max pool": lambda: [nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 3, 3)],
    "max pool at borders": lambda: [nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.Conv2d(2, 3, 2), nn.MaxPool2d(2, 1)],
    "max pool of three": lambda: [nn.MaxPool2d(3, 2), nn.Conv2d(2, 3, 2), nn.MaxPool2d((1, 2), 1)],
    "slices": lambda: [Apply(lambda x: x[:, :, 1::2, 2:]), nn.Conv2d(2, 3, 2), nn.ReLU(), Apply(lambda x: x[:, 1:])],
    "maximum": lambda: [Join(torch.maximum, nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(2, 3, 1)), nn.Conv2d(3, 2, 3)],
    "pad": lambda: [nn.ConstantPad2d((1, 0, 2, 0), 0.5), nn.Conv2d(2, 3, 3), nn.ReLU(), nn.ZeroPad2d((0, 1, -1, 0))],
    "pad reflect": lambda: [nn.Conv2d(2, 3, 2), nn.ReLU(), nn.ReflectionPad2d(1), nn.Conv2d(3, 2, 3)],
    "add": lambda: [Join(torch.add, nn.Conv2d(2, 3, 3, padding=1), nn.Sequential(nn.Conv2d(2, 3, 1), nn.ReLU()))],
    "add of other strides": lambda: [
        Join(
            torch.add,
            nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Upsample(scale_factor=1)),
            nn.Sequential(nn.Conv2d(2, 3, 1, stride=2), nn.Upsample(size=(12, 11))),
        )
    ],
    "concat": lambda: [Join(_cat, nn.Conv2d(2, 2, 3, padding=1), nn.Sequential(nn.Conv2d(2, 3, 1), nn.ReLU()))],
    "residual": lambda: [nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), Residual(3, 3, 1), Residual(3, 4, 2)],
    "mobile": lambda: [nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(2, 3, 3, stride=2), nn.ReLU6(), Inverted(3, 6)],
}


@cache
def graph_of(name: str) -> Graph:
    """The body, a ReLU and a dense layer to three logits, in double precision; traced once."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(sum(map(ord, name)))
        body = nn.Sequential(*BODIES[name](), nn.ReLU(), nn.Flatten()).double().eval()
        x = points(1)
        model = nn.Sequential(body, nn.Linear(body(x).shape[1], 3).double())
    return trace(model.eval(), x)


def points(count: int) -> Tensor:
    return torch.rand(count, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) * 2 - 1
