"""Trials with networks on 16 bits whose weights are set by hand, so that the relevant bits follow from the weights.

A variable is relevant at an input if it belongs to a smallest set of variables that fixes the decision for all values
of the others, over all 2^16 inputs. The same variables belong to the smallest sets whose change can change the
decision. The inputs are corners of the domain [0, 1]. Bits that a network ignores are random and differ between inputs.
No unit is at its kink at any input, because a gradient is not unique there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from benchmarks.trials.trial import Trial
from benchmarks.trials.truth_metrics import Order, Precision

_Relevant: TypeAlias = Mapping[
    tuple[int, ...], Sequence[int]
]  # values of some bits -> which of these bits are relevant

IMAGE_SIDE = 4
_INPUTS = 32  # inputs of each network
_A, _B, _C, _D = 5, 10, 3, 12  # positions of the deciding bits
_VOTES = {_A: 4, _B: 3, _C: 2, _D: 1}
_SHIFT = (0, 6, 9, 15)
_PATCH = (10, 11, 14, 15)  # the lower right quarter
_DIAGONAL = ((1.0, 0.0), (0.0, 1.0))


def pixel() -> Trial:
    """One bit decides."""
    network = _dense([{_A: 1.0}], [0.5], [1.0], -1.0)
    return _trial("pixel", "One pixel decides", network, *_each({(0,): (0,), (1,): (0,)}, _A))


def either() -> Trial:
    """a or b: z = ⅜ - max(0, ¾ - a - b). If both are 1, neither alone changes the decision."""
    truth: _Relevant = {(0, 0): (0, 1), (0, 1): (1,), (1, 0): (0,), (1, 1): (0, 1)}
    network = _dense([{_A: -1.0, _B: -1.0}], [0.75], [-1.0], 0.375)
    return _trial("or", "An OR of two pixels", network, *_each(truth, _A, _B))


def both() -> Trial:
    """a and b: z = max(0, a + b - 1¼) - ⅜."""
    truth: _Relevant = {(0, 0): (0, 1), (0, 1): (0,), (1, 0): (1,), (1, 1): (0, 1)}
    network = _dense([{_A: 1.0, _B: 1.0}], [-1.25], [1.0], -0.375)
    return _trial("and", "An AND of two pixels", network, *_each(truth, _A, _B))


def differ() -> Trial:
    """a xor b: z = max(0, a - b - ¼) + max(0, b - a - ¼) - ⅜."""
    return _trial("xor", "A XOR of two pixels", _xor(), *_each(dict.fromkeys(_BITS, (0, 1)), _A, _B))


def differ_convolved() -> Trial:
    """a xor b behind a convolution with the channels x + ½ and 1½ - x, of which the network reads the first."""
    stem = skip_init(nn.Conv2d, 1, 2, 3, padding=1)
    weight, bias = torch.zeros(2, 1, 3, 3), torch.tensor([0.5, 1.5])
    weight[:, 0, 1, 1] = torch.tensor([1.0, -1.0])
    first, *rest = list(_xor())[1:]
    assert isinstance(first, nn.Linear)
    read = _linear(torch.cat([first.weight, torch.zeros_like(first.weight)], dim=1), first.bias)
    network = nn.Sequential(_filled(stem, weight, bias), nn.ReLU(), nn.Flatten(), read, *rest)
    return _trial("xor-conv", "The XOR behind a convolution", network, *_each(dict.fromkeys(_BITS, (0, 1)), _A, _B))


def distractors() -> Trial:
    """One bit decides. All other bits drive four units that occur twice with opposite signs, so they have no effect."""
    drawn = torch.randn(4, IMAGE_SIDE**2, generator=torch.Generator().manual_seed(1))
    drawn = (4 * drawn).round() / 4  # multiples of ¼: sums are exact, so opposite terms cancel
    others = [{at: float(row[at]) for at in range(IMAGE_SIDE**2) if at != _A} for row in drawn]
    halves = [1 / 16 - sum(row.values()) / 2 for row in others]  # about half of the inputs activate a unit
    network = _dense([{_A: 1.0}, *others, *others], [0.5, *halves, *halves], [1.0] + [1.0] * 4 + [-1.0] * 4, -1.0)
    title = "Pixels that move units, not the decision"
    return _trial("distractors", title, network, *_each({(0,): (0,), (1,): (0,)}, _A))


def shift() -> Trial:
    """One bit decides. Four other bits raise all logits equally, which does not change the probabilities."""
    hidden = [{_A: 1.0}, dict.fromkeys(_SHIFT, 1.0)]
    network = _network(hidden, [0.5, 0.5], torch.tensor([[-1.0, 1.0], [1.0, 1.0]]), torch.tensor([1.0, -1.0]))
    return _trial("shift", "Pixels that raise all classes alike", network, *_each({(0,): (0,), (1,): (0,)}, _A))


def votes() -> Trial:
    """Four equal bits with 4, 3, 2 and 1 of 10 votes: each bit changes z by its votes at every input."""
    network = _dense([{at: many / 10 for at, many in _VOTES.items()}], [0.5], [1.0], -0.95)
    levels = torch.zeros(_INPUTS, IMAGE_SIDE**2)
    x = _bits()
    for at, many in _VOTES.items():
        x[:, at], levels[:, at] = (torch.arange(_INPUTS) % 2).float(), many
    return _trial("votes", "Four pixels with 4, 3, 2 and 1 votes", network, x, levels)


def patch() -> Trial:
    """Three classes: four ones in a patch give the last class; otherwise one other bit decides between the others."""
    reads = torch.tensor([[0.0, -1.0], [0.0, 1.0], [2.0, 0.0]])
    network = _network([dict.fromkeys(_PATCH, 1.0), {_A: 1.0}], [-3.0, 0.5], reads, torch.tensor([1.5, -0.5, 0.0]))
    return _trial("patch", "A class that one patch decides", network, *_each({(1,) * 4: range(4)}, *_PATCH))


def pattern() -> Trial:
    """A diagonal of 2 x 2 bits at any position, once in each input: a convolution with max pooling finds it."""
    kernel = 2 * torch.tensor(_DIAGONAL) - 1
    finds = _filled(skip_init(nn.Conv2d, 1, 1, 2), kernel[None, None], torch.tensor([-1.25]))
    read = _linear(torch.tensor([[-1.0], [1.0]]), torch.tensor([0.375, -0.375]))
    network = nn.Sequential(finds, nn.ReLU(), nn.MaxPool2d(IMAGE_SIDE - 1), nn.Flatten(), read)
    inputs: list[Tensor] = []
    truths: list[Tensor] = []
    for drawn in _bits(64 * _INPUTS):
        x = drawn.view(IMAGE_SIDE, IMAGE_SIDE).clone()
        top, left = divmod(len(inputs) % (IMAGE_SIDE - 1) ** 2, IMAGE_SIDE - 1)
        x[top : top + 2, left : left + 2] = torch.tensor(_DIAGONAL)
        changed = (x.flatten() - torch.eye(IMAGE_SIDE**2)).abs()  # each row has one bit changed
        near = changed.view(-1, 1, IMAGE_SIDE, IMAGE_SIDE)
        inside = torch.zeros(IMAGE_SIDE, IMAGE_SIDE)
        inside[top : top + 2, left : left + 2] = 1
        found = (finds(near) > 0).flatten(1).any(1)
        if not found[inside.flatten() > 0].any():  # then the pattern occurs once in x
            inputs.append(x.flatten())
            truths.append(inside.flatten())
        if len(inputs) == _INPUTS:
            break
    return _trial("pattern", "A pattern, wherever it is", network, torch.stack(inputs), torch.stack(truths))


_BITS = tuple(product((0, 1), repeat=2))
HAND_SET: Mapping[str, Callable[[], Trial]] = {
    "pixel": pixel,
    "or": either,
    "and": both,
    "xor": differ,
    "xor-conv": differ_convolved,
    "distractors": distractors,
    "shift": shift,
    "votes": votes,
    "patch": patch,
    "pattern": pattern,
}


def _xor() -> nn.Sequential:
    return _dense([{_A: 1.0, _B: -1.0}, {_A: -1.0, _B: 1.0}], [-0.25, -0.25], [1.0, 1.0], -0.375)


def _dense(
    hidden: Sequence[Mapping[int, float]], biases: Sequence[float], out: Sequence[float], offset: float
) -> nn.Sequential:
    """Return the network with logits (-z, z), z = offset + Σ out_k max(0, bias_k + Σ_i hidden_k[i] x_i)."""
    signs = torch.tensor([-1.0, 1.0])
    return _network(hidden, biases, torch.outer(signs, torch.tensor(out)), offset * signs)


def _network(
    hidden: Sequence[Mapping[int, float]], biases: Sequence[float], reads: Tensor, offsets: Tensor
) -> nn.Sequential:
    """Return the network with logits offsets + reads h, for units h_k = max(0, bias_k + Σ_i hidden_k[i] x_i)."""
    rows = torch.zeros(len(hidden), IMAGE_SIDE**2)
    for row, weights in zip(rows, hidden, strict=True):
        for at, weight in weights.items():
            row[at] = weight
    return nn.Sequential(nn.Flatten(), _linear(rows, torch.tensor(biases)), nn.ReLU(), _linear(reads, offsets))


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    made: nn.Linear = skip_init(nn.Linear, weight.shape[1], weight.shape[0])
    _filled(made, weight, bias)
    return made


def _filled(layer: nn.Module, weight: Tensor, bias: Tensor) -> nn.Module:
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer


def _bits(count: int = _INPUTS) -> Tensor:
    return (torch.rand(count, IMAGE_SIDE**2, generator=torch.Generator().manual_seed(0)) < 0.5).float()


def _each(truth: _Relevant, *places: int) -> tuple[Tensor, Tensor]:
    """Return inputs with the given values at the positions, in turn, and a truth that is 1 at relevant positions."""
    x, levels = _bits(), torch.zeros(_INPUTS, IMAGE_SIDE**2)
    for k, (row, level) in enumerate(zip(x, levels, strict=True)):
        values, matter = list(truth.items())[k % len(truth)]
        row[list(places)] = torch.tensor(values).float()
        level[[places[at] for at in matter]] = 1
    return x, levels


def _trial(name: str, title: str, network: nn.Module, x: Tensor, levels: Tensor) -> Trial:
    """Return the trial. Its far radius is 1, because the truth is about the whole domain."""
    x, levels = x.view(-1, 1, IMAGE_SIDE, IMAGE_SIDE), levels.view(-1, IMAGE_SIDE, IMAGE_SIDE)
    with torch.no_grad():
        target = network.eval()(x).argmax(1)
    return Trial(name, title, network, x, target, (Precision(truth=levels), Order(truth=levels)), (0.0, 1.0), 1.0)
