"""Does the size of a sufficient set tell other data from MNIST's, beside the maximum softmax probability?

VeriX+ (Wu et al. 2024) detects inputs from another distribution by the size of their explanations. The other data are
scikit-learn's digits (8 x 8, enlarged), and pictures without digits: patches of scikit-learn's photographs, and noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from statistics import mean

import numpy as np
import torch
from sklearn.datasets import load_digits, load_sample_images
from sklearn.metrics import roc_auc_score
from torch import Tensor

import proofmap as pm
from proofmap.errors import ProofmapError

from .cases import mnist_file
from .measure import columns
from .rows import Row
from .summaries import markdown

_SCORES = {"kept": 1.0, "confidence": -1.0}  # columns that are larger, or smaller, for other data
_DRAWS = 10_000  # bootstrap samples
SOURCES = ("mnist", "sklearn-digits", "photographs", "noise")


@cache
def pictures(source: str, data: str) -> Tensor:
    """Return pictures (N, 1, 28, 28) in [0, 1], of float32."""
    draw = np.random.default_rng(0)
    if source == "mnist":
        return pm.data.mnist(data, "test")[0]
    if source == "sklearn-digits":
        small = torch.from_numpy(load_digits().images / 16).float()[:, None]
        order = torch.from_numpy(draw.permutation(len(small)))
        large = torch.nn.functional.interpolate(small[order], (20, 20), mode="bilinear")
        return torch.nn.functional.pad(large, (4, 4, 4, 4)).clamp(0, 1)
    if source == "photographs":
        grey = [np.asarray(photo, dtype=np.float64).mean(2) / 255 for photo in load_sample_images().images]
        patches = []
        for k in range(1000):
            photo = grey[k % len(grey)]
            row, column = (draw.integers(0, size - 84) for size in photo.shape)
            patches.append(photo[row : row + 84 : 3, column : column + 84 : 3])
        return torch.from_numpy(np.array(patches)).float()[:, None]
    return torch.from_numpy(draw.random((1000, 1, 28, 28))).float()


def shift(task: Row) -> Row:
    """Return the size of one picture's sufficient set, and the largest softmax probability."""
    case = mnist_file(str(task["networks"]), str(task["network"]), str(task["data"]), "test")
    x = pictures(str(task["source"]), str(task["data"]))[int(str(task["index"]))][None]
    outputs = case.on("cpu")(x)
    confidence = float(outputs.double().softmax(1).max())
    ball = case.ball(float(str(task["eps"])))
    limit = float(str(task["limit_s"]))
    try:
        found = pm.Sufficient(case.on("cpu"), ball, seconds=limit, progress=False).explain(x)
    except ProofmapError as error:
        none = dict.fromkeys(("kept", "necessary", "undecided"), "")
        return {"predicted": int(outputs.argmax()), **none, "confidence": confidence, "error": str(error)[:60]}
    row = columns(found, -1)
    kept = {name: row[name] for name in ("predicted", "kept", "necessary", "undecided")}
    return {**kept, "confidence": confidence, "error": ""}


def show(rows: Sequence[Mapping[str, str]]) -> str:
    """Return the AUROC of both scores for each network and other source."""
    lines = []
    for network in dict.fromkeys(row["network"] for row in rows):
        inside = [row for row in rows if row["network"] == network and row["source"] == "mnist" and row["kept"]]
        for source in SOURCES[1:]:
            outside = [row for row in rows if row["network"] == network and row["source"] == source and row["kept"]]
            if inside and outside:
                truth = [0] * len(inside) + [1] * len(outside)
                both = [*inside, *outside]
                sizes, confidences = ([sign * float(row[name]) for row in both] for name, sign in _SCORES.items())
                size, softmax = roc_auc_score(truth, sizes), roc_auc_score(truth, confidences)
                low, high = difference(np.array(sizes), np.array(confidences), len(inside))
                lines.append(
                    {
                        "network": network,
                        "other data": source,
                        "pictures": f"{len(inside)} and {len(outside)}",
                        "kept, MNIST": f"{mean(float(row['kept']) for row in inside):.1f}",
                        "kept, other": f"{mean(float(row['kept']) for row in outside):.1f}",
                        "AUROC of the size": f"{size:.3f}",
                        "AUROC of the softmax": f"{softmax:.3f}",
                        "difference, 95 %": f"{low:+.3f} to {high:+.3f}",
                    }
                )
    return markdown(lines)


def difference(sizes: np.ndarray, confidences: np.ndarray, inside: int) -> tuple[float, float]:
    """Return the 95 % interval of AUROC(sizes) - AUROC(confidences), by a bootstrap over both groups of pictures.

    inside: the number of pictures of the first group. The same pictures are drawn for both scores.
    """
    draw = np.random.default_rng(0)
    many = len(sizes) - inside
    first = draw.multinomial(inside, np.full(inside, 1 / inside), _DRAWS) / inside
    second = draw.multinomial(many, np.full(many, 1 / many), _DRAWS) / many
    apart = sum(
        sign * np.sign(scores[inside:] - scores[:inside, None]) / 2 for scores, sign in ((sizes, 1), (confidences, -1))
    )  # AUROC = P(larger) + P(equal) / 2 = 1/2 + E(sign of the difference) / 2
    found = np.einsum("di,io,do->d", first, apart, second, optimize=True)
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)
