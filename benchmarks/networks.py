"""Networks of other kinds than the paper's, and their training data, for `wide.py`.

Text: the language of a word, one of five, from its letters (word lists of the package wordfreq). Series: summer or
winter days from their power demand, and movements with and without a gun (data of the package sktime).
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LANGUAGES = ("en", "de", "fr", "es", "it")
MAX_WORD_LETTERS = 12
LETTERS = "abcdefghijklmnopqrstuvwxyzàâäæçèéêëìíîïñòóôöùúûüœß"
_WORDS_PER_LANGUAGE = 6000  # the most frequent ones


Part = Literal["train", "test"]
Data = tuple[Tensor, Tensor]  # samples and classes


class Squeeze(nn.Module):
    """Squeeze and excitation: each channel is multiplied by a gate that depends on the means of all channels."""

    def __init__(self, channels: int, narrow: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(channels, narrow), nn.Linear(narrow, channels)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.second(F.relu(self.first(x.mean(dim=(2, 3))))))
        return x * gate[:, :, None, None]


class Mobile(nn.Module):
    """A mobile block: widen, depthwise filters, squeeze and excitation, narrow; added to x if the shapes agree."""

    def __init__(self, channels: int, wide: int, out: int, stride: int) -> None:
        super().__init__()
        self.adds = stride == 1 and channels == out
        self.body = nn.Sequential(
            nn.Conv2d(channels, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            Squeeze(wide, wide // 4),
            nn.Conv2d(wide, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        return x + y if self.adds else y


def mobile() -> nn.Module:
    """Return a network of images (N, 3, 32, 32) to 10 logits: a stem and three mobile blocks."""
    stem = nn.Sequential(nn.Conv2d(3, 16, 4, 4, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
    blocks = [Mobile(16, 48, 24, 1), Mobile(24, 72, 24, 1), Mobile(24, 72, 48, 2)]
    return nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10))


class Reader(nn.Module):
    """Embedded letters (N, MAX_WORD_LETTERS, width) to logits: one head of attention, the mean, two dense layers."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.place = nn.Parameter(0.02 * torch.randn(1, MAX_WORD_LETTERS, width))
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.norm = nn.LayerNorm(width)
        self.dense = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, len(LANGUAGES)))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.place
        weights = (self.query(x) @ self.key(x).transpose(1, 2) / x.shape[2] ** 0.5).softmax(dim=-1)
        logits: Tensor = self.dense(self.norm(x + weights @ self.value(x)).mean(dim=1))
        return logits


class Text(nn.Module):
    """Numbers of letters (N, MAX_WORD_LETTERS) to logits; `reader`, after the embedding, is the bounded part."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS) + 1, width)
        self.reader = Reader(width)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.reader(self.letters(x))
        return logits


class Recurrent(nn.Module):
    """Series (N, 1, T) to logits: the last state of an LSTM, and a dense layer."""

    def __init__(self, hidden: int = 12) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 2)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(x.transpose(1, 2))
        logits: Tensor = self.head(states[:, -1])
        return logits


def filters() -> nn.Module:
    """Return a network of series (N, 1, 150) to logits: two convolutions, the mean over time, a dense layer."""
    convolutions = [nn.Conv1d(1, 8, 9, 2), nn.ReLU(), nn.Conv1d(8, 16, 9, 2), nn.ReLU()]
    return nn.Sequential(*convolutions, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 2))


def words(part: Part) -> Data:
    """Return numbers of letters (N, MAX_WORD_LETTERS), with 0 after the end of a word.

    Words of two languages are skipped. One word in five, by a hash, is test data.
    """
    from wordfreq import top_n_list

    of: dict[str, set[int]] = {}
    for k, language in enumerate(LANGUAGES):
        for word in top_n_list(language, _WORDS_PER_LANGUAGE):
            if 4 <= len(word) <= MAX_WORD_LETTERS and set(word) <= set(LETTERS):
                of.setdefault(word, set()).add(k)
    kept = sorted((word, next(iter(found))) for word, found in of.items() if len(found) == 1)
    x = torch.tensor([[LETTERS.index(c) + 1 for c in word] + [0] * (MAX_WORD_LETTERS - len(word)) for word, _ in kept])
    y = torch.tensor([language for _, language in kept])
    tested = torch.tensor([hashlib.sha256(word.encode()).digest()[0] % 5 == 0 for word, _ in kept])
    asked = tested if part == "test" else ~tested
    return x[asked], y[asked]


def word_of(numbers: Tensor) -> str:
    """Return the letters of a sample."""
    return "".join(LETTERS[k - 1] for k in numbers.tolist() if k)


def series(name: str, part: Part) -> Data:
    """Load a set of the UCR archive from sktime, (N, 1, T); each series has mean 0 and standard deviation 1."""
    spec = importlib.util.find_spec("sktime")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the series are data of the package sktime: pip install sktime")
    file = Path(spec.submodule_search_locations[0], "datasets", "data", name, f"{name}_{part.upper()}.ts")
    lines = file.read_text(encoding="utf-8").splitlines()
    rows = [line.split(":") for line in lines if line and line[0] not in "#@"]
    x = torch.tensor([[float(value) for value in values.split(",")] for values, _ in rows])
    return F.layer_norm(x, x.shape[1:]).unsqueeze(1), torch.tensor([int(label) - 1 for _, label in rows])
