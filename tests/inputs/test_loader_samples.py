"""A DataLoader gives the same results as the tensor of its samples."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import proofmap as pm
from proofmap.errors import InputError
from proofmap.inputs.loader_samples import samples_of_loader

X = torch.rand(5, 4, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 2, 0, 1])
BALL = pm.Ball(0.05, domain=(0.0, 1.0))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).eval()


class Stream(IterableDataset[Tensor]):
    """Samples without a known number."""

    def __iter__(self) -> Iterator[Tensor]:
        return iter(X)


LOADERS: dict[str, Any] = {
    "x": DataLoader(X, batch_size=2),  # type: ignore[arg-type]
    "(x,)": DataLoader(TensorDataset(X), batch_size=2),
    "(x, y)": DataLoader(TensorDataset(X, Y), batch_size=3),
    "a stream": DataLoader(Stream(), batch_size=2),
    "arrays": DataLoader([(row, 1) for row in X.numpy()], batch_size=4),  # type: ignore[arg-type]
    "one batch": DataLoader(TensorDataset(X, Y), batch_size=99),
}


@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS.keys())
def test_all_samples_in_their_order(loader: Any) -> None:
    assert torch.equal(samples_of_loader(loader), X)


def test_every_entry_point_takes_a_loader() -> None:
    model, loader = network(), LOADERS["(x, y)"]
    eva = pm.EVA(model, BALL, progress=False)
    found, expected = eva.explain(loader), eva.explain(X)
    assert torch.equal(found.x, X)
    assert torch.equal(found.scores, expected.scores)
    assert torch.equal(eva.explain(loader, target=Y).target, Y)
    assert torch.equal(pm.overlap(model, loader, BALL).full, pm.overlap(model, X, BALL).full)
    radii = [pm.certified_radius(model, x, steps=4, progress=False) for x in (loader, X)]
    assert torch.equal(*radii)
    assert torch.equal(*(pm.radius(model, x, steps=4, progress=False).refuted for x in (loader, X)))
    tables = [pm.compare(model, x, ["eva", "saliency"], ["deletion"], ball=BALL, progress=False) for x in (loader, X)]
    for method in ("eva", "saliency"):
        found_values, expected_values = (table.values[method]["deletion"] for table in tables)
        np.testing.assert_array_equal(found_values, expected_values)
    assert torch.equal(pm.explain(model, loader, seconds=0.1, progress=False).map.x, X)


def test_a_shuffled_loader_is_refused() -> None:
    """Otherwise nobody knows which sample a result is about. The advice works."""
    model = network()
    with pytest.raises(InputError, match="got a DataLoader with shuffle=True, expected a fixed order"):
        pm.overlap(model, DataLoader(TensorDataset(X), shuffle=True), BALL)
    assert len(pm.overlap(model, DataLoader(TensorDataset(X), shuffle=False), BALL).full) == 5


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "got a DataLoader without batches, expected at least one sample"),
        ([{"image": X}], "batch 0 is a dict of 1 parts, expected batches of samples x, or of pairs"),
        ([(X, X, Y)], "batch 0 is a list of 3 parts"),
        ([("name", Y)], "batch 0 is a str, expected batches of samples x"),
        (
            [X, X[:, :3]],
            r"samples torch.float32 of shape \(3,\) in batch 1, expected torch.float32 of shape \(4,\) as in",
        ),
        ([X, X.double()], r"samples torch.float64 of shape \(4,\) in batch 1, expected torch.float32"),
    ],
)
def test_other_batches_are_refused(batches: list[Any], message: str) -> None:
    loader: Any = DataLoader(batches, batch_size=None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        pm.EVA(network(), BALL).explain(loader)


def test_a_data_set_is_refused_with_advice_that_works() -> None:
    with pytest.raises(InputError, match=r"x is a TensorDataset, .* use torch.utils.data.DataLoader\(x, batch_size="):
        pm.overlap(network(), TensorDataset(X), BALL)  # type: ignore[arg-type]
    assert len(pm.overlap(network(), DataLoader(TensorDataset(X), batch_size=64), BALL).full) == 5
