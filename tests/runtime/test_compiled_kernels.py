"""Kernels that torch compiles."""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock
from typing import Any

import pytest
import torch

from proofmap.runtime import compiled_kernels


def test_kernels_are_called_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any call may compile once more, for which torch is made for one thread."""
    meet, inside = Barrier(3), Lock()

    def function(value: int) -> int:
        assert inside.acquire(blocking=False)
        time.sleep(0.001)  # another thread gets its turn
        inside.release()
        return 2 * value

    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    run = compiled_kernels.compiled(function, lambda size: (size,))
    assert run is not None

    def often(k: int) -> list[Any]:
        meet.wait(20)
        return [run(k) for _ in range(5)]

    with ThreadPoolExecutor(3) as pool:
        assert [found for part in pool.map(often, range(3)) for found in part] == [0] * 5 + [2] * 5 + [4] * 5
