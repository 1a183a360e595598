"""Certificates made by hand: intervals as the checker derives them, default slopes."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from proofmap.proof import check as checker

Array = np.ndarray[Any, Any]
BALL: dict[str, Any] = {"norm": "inf", "eps": "0.01", "domain": ["0", "1"], "relative": False, "half": None}


def export(model: nn.Module, shape: tuple[int, ...], path: Path) -> Path:
    """Write a model as ONNX."""
    torch.onnx.export(model, (torch.zeros(1, *shape),), str(path), dynamo=False, opset_version=17)
    return path


def outward(low: Array, high: Array) -> tuple[Array, Array]:
    """float32 ends outside the float64 ones."""
    a, b = low.astype(np.float32), high.astype(np.float32)
    a = np.where(a > low, np.nextafter(a, np.float32(-np.inf)), a)
    b = np.where(b < high, np.nextafter(b, np.float32(np.inf)), b)
    return a, b


def proof_of(network: checker.Network, question: checker.Question) -> checker.Proof:
    """The intervals that follow, one relu after the other."""
    proof = checker.Proof()
    for k in range(len(network.relus)):
        low, high = outward(*checker.interval(network, question, proof, k))
        proof.lower.append(low)
        proof.upper.append(high)
    return proof


def npy(array: Array) -> bytes:
    """The bytes of a .npy file."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    return stream.getvalue()


def question_of(x: Array, target: int, classes: int, ball: dict[str, Any] = BALL, mask: Any = None) -> checker.Question:
    """All other classes are rivals."""
    groups = 0 if mask is None else int(mask.max()) + 1
    return checker.Question(x, ball, mask, groups, target, [c for c in range(classes) if c != target])
