"""Running out of memory during tracing is not reported as a fault of the model."""

import pytest
import torch
from torch import nn

import proofmap as pm
from proofmap.runtime.memory import is_out_of_memory


def test_lack_of_memory_is_not_the_model_s_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        torch.empty(2**50, dtype=torch.uint8)

    monkeypatch.setattr("torch.export.export", full)
    with pytest.raises(RuntimeError) as caught:
        pm.trace(nn.Linear(3, 2), torch.zeros(1, 3))
    assert is_out_of_memory(caught.value)
