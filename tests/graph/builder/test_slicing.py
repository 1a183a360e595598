"""Indexing, slicing, concatenation and padding."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from proofmap.graph.builder import slicing
from tests.graph.built import assert_is, built

Array = npt.NDArray[Any]


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("pads", [(1, 2), (0, 1, 2, 0), (1, 1, 0, 0, 1, 0), (-1, 2), (2, -1, 0, 1)])
def test_padding_is_that_of_numpy(mode: str, pads: tuple[int, ...]) -> None:
    graph = built((2, 3, 4), lambda b: slicing.pad(b, "y", "input", pads, mode, 0.5 if mode == "constant" else 0.0))

    def expected(x: Tensor) -> Tensor:
        pairs = [(0, 0)] * (4 - len(pads) // 2) + list(zip(pads[::2], pads[1::2], strict=True))[::-1]
        how = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
        extra = {"constant_values": 0.5} if mode == "constant" else {}
        wide = x.numpy()
        if mode == "circular":  # torch and ONNX wrap the entries that remain after the crop
            wide = cropped(wide, pairs)
        wide = np.pad(wide, [(max(a, 0), max(c, 0)) for a, c in pairs], mode=how, **extra)  # type: ignore[call-overload]
        return torch.from_numpy(np.ascontiguousarray(wide if mode == "circular" else cropped(wide, pairs)))

    assert_is(graph, expected)
    if mode == "circular" and len(pads) < 6:
        assert_is(graph, lambda x: F.pad(x, (*pads, *(0,) * (4 - len(pads))), mode=mode))


def cropped(x: Array, pairs: list[tuple[int, int]]) -> Array:
    return x[tuple(slice(max(-a, 0), n - max(-c, 0)) for (a, c), n in zip(pairs, x.shape, strict=True))]
