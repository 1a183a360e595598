"""Certificates are about the user's own ONNX file; where another one is exported, both hashes are said."""

import json
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import helper

import proofmap as pm
from proofmap.errors import BoundError, FileError, InputError
from proofmap.explainers import Explanation
from proofmap.proof import check
from proofmap.sources import Preparation, read_model
from tests.proof.making import npy, onnx_file, write
from tests.proof.test_certificate import accepted, inputs, small
from tests.sources.files import write_linear

EPS = 2.0**-12


def explained(model: Any, x: torch.Tensor, eps: float = 0.05) -> Explanation:
    return pm.EVA(model, pm.Ball(eps, domain=(0.0, 1.0)), groups=pm.groups.grid(2), progress=False).explain(x)


def hash_of(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def test_a_loaded_file_is_what_its_certificate_is_about(tmp_path: Path) -> None:
    path = write_linear(tmp_path / "net.onnx", (1, 4, 4))
    certificate = explained(pm.load(path), inputs()).certificate()
    files = certificate.save(tmp_path / "x.proof")
    assert files[1] == path
    assert not (tmp_path / "x.onnx").exists()
    assert certificate.claim["model"] == {"sha256": hash_of(path), "prepare": None, "exported_from": None}
    assert certificate.exported is None
    assert check.check(*files)


def test_a_file_that_changed_since_it_was_loaded_is_named_with_both_hashes(tmp_path: Path) -> None:
    path = write_linear(tmp_path / "net.onnx", (1, 4, 4))
    e, before = explained(pm.load(path), inputs()), hash_of(path)
    model = onnx.load(path)
    model.doc_string = "another"
    onnx.save(model, path)
    with pytest.raises(FileError, match=rf"has changed since it was loaded: .*{before} and is {hash_of(path)} now"):
        e.certificate()
    path.unlink()
    with pytest.raises(FileError, match=r"cannot read .*net.onnx: No such file"):
        e.certificate()


@pytest.mark.parametrize("kind", [str, Path])
def test_another_file_of_the_network_is_given_by_its_path(kind: type, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    explained(small(), inputs()).certificate().save(path.with_suffix(".proof"))
    certificate = explained(small(), inputs()).certificate(file=kind(path))
    assert certificate.save(tmp_path / "y.proof")[1] == path
    assert certificate.exported is None
    with pytest.raises(InputError, match=r"other.onnx gives logits of .* give the file that the explanation was made"):
        explained(small(), inputs()).certificate(file=kind(write_linear(tmp_path / "other.onnx", (1, 4, 4))))


def test_a_module_is_exported_and_one_sentence_has_both_hashes(tmp_path: Path) -> None:
    e = explained(small(), inputs())
    certificate = e.certificate()
    files = certificate.save(tmp_path / "x.proof")
    assert certificate.exported is not None
    assert hash_of(files[1]) in certificate.exported
    assert e.model_hash in certificate.exported
    assert certificate.summary().endswith(certificate.exported)
    assert certificate.claim["model"]["exported_from"]["sha256"] == e.model_hash
    assert f"exported from a model with the hash {e.model_hash}: nothing is proven" in check.check(*files)


def with_function(path: Path) -> Path:
    """A file with a function of its own, which the checker refuses and a loader inlines."""
    opset = helper.make_opsetid("", 17)
    function = helper.make_function("own", "Bend", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], [opset])
    weight = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Flatten", ["x"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["h"]),
        helper.make_node("Bend", ["h"], ["y"], domain="own"),
    ]
    model = onnx.load(onnx_file(path, [1, 1, 4, 4], nodes, {"w": weight}))
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("own", 1))
    onnx.save(model, path)
    return path


def test_a_file_that_the_checker_cannot_read_is_exported_and_named(tmp_path: Path) -> None:
    path = with_function(tmp_path / "net.onnx")
    e = explained(pm.load(path), inputs())
    certificate = e.certificate()
    files = certificate.save(tmp_path / "x.proof")
    assert files[1] == tmp_path / "x.onnx"
    assert certificate.exported is not None
    assert hash_of(path) in certificate.exported
    assert hash_of(files[1]) in certificate.exported
    assert "the checker cannot read that file (the model: " in certificate.exported
    assert check.check(*files)
    with pytest.raises(BoundError, match=r"cannot read .*net.onnx: the model: .*; leave out file="):
        e.certificate(file=path)


PREPARATIONS = [
    Preparation(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4), layout="NHWC"),
    Preparation(layout="NHWC"),
    Preparation(std=(0.25,)),
    Preparation(mean=(0.1,), size=(4, 4)),
]


def channels_last(path: Path, flat: bool) -> Path:
    """A file that takes (n, 4, 4, 3), or (n, 48) numbers."""
    return write_linear(path, (48,) if flat else (4, 4, 3))


@pytest.mark.parametrize("preparation", PREPARATIONS, ids=["all", "layout", "std", "flat"])
def test_preparation_is_a_part_of_the_claim_and_not_of_another_file(preparation: Preparation, tmp_path: Path) -> None:
    path = channels_last(tmp_path / "net.onnx", preparation.size is not None)
    model = read_model(str(path), preparation=preparation)
    assert model.preparation.shape is not None
    x = torch.rand(1, *model.preparation.shape, generator=torch.Generator().manual_seed(1))
    certificate = explained(model.network, x, EPS).certificate()
    stated = certificate.claim["model"]
    assert (stated["sha256"], stated["exported_from"]) == (hash_of(path), None)
    assert stated["prepare"]["layout"] == preparation.layout
    assert accepted(certificate, tmp_path)
    steps = torch.rand(200, *x.shape[1:], generator=torch.Generator().manual_seed(2)).mul(3).sub(1.5).clamp(-1, 1)
    points = (x + EPS * steps).clamp(0, 1).numpy()
    column = (-1, *[1] * (points.ndim - 2))
    given = ((preparation.mean, 0), (preparation.std, 1))
    mean, std = (np.array(values or (default,), np.float32).reshape(column) for values, default in given)
    ready = (points - mean) / std
    ready = np.moveaxis(ready, 1, -1) if preparation.layout == "NHWC" else ready
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wanted = session.get_inputs()[0].shape[1:]
    logits = session.run(None, {"x": ready.reshape(-1, *wanted).astype(np.float32)})[0].astype(float)
    c = certificate.claim["target"]
    margin = np.delete(logits, c, 1).max(1) - logits[:, c]
    assert margin.max() <= certificate.full
    assert margin.max() > certificate.full - 0.1  # so that the bound of another preparation would not do


def rewritten(folder: Path, change: Any) -> tuple[Path, Path, Path]:
    """A certificate of a module, its claim changed."""
    proof, model, given = explained(small(), inputs()).certificate().save(folder / "x.proof")
    with zipfile.ZipFile(proof) as file:
        members = {name: file.read(name) for name in file.namelist()}
    claim = json.loads(members["claim.json"])
    change(claim)
    return write(proof, members | {"claim.json": json.dumps(claim).encode()}), model, given


@pytest.mark.parametrize(
    ("why", "change"),
    {
        "layout is unknown": lambda c: c["model"].update(prepare={"mean": None, "std": None, "layout": "NHCW"}),
        "other fields than mean std layout": lambda c: c["model"].update(prepare={"mean": None, "layout": "NCHW"}),
        "other fields than sha256 prepare exported_from": lambda c: c["model"].pop("exported_from"),
        "names the original": lambda c: c["model"]["exported_from"].update(sha256="proven"),
        "by kind and SHA-256": lambda c: c["model"]["exported_from"].update(kind="proven"),
        "another version": lambda c: c.update(version=True),
        "another model, of SHA-256 0{64}; this one has [0-9a-f]{64}": lambda c: c["model"].update(sha256="0" * 64),
        "another input, of shape .* and SHA-256 0{64}; this one": lambda c: c["input"].update(sha256="0" * 64),
    }.items(),
)
def test_a_claim_that_names_its_model_otherwise_is_rejected(why: str, change: Any, tmp_path: Path) -> None:
    with pytest.raises(check.Rejected, match=why):
        check.check(*rewritten(tmp_path, change))


def test_an_input_with_a_batch_axis_of_one_is_the_same_input(tmp_path: Path) -> None:
    certificate = explained(small(), inputs()).certificate()
    proof, model, given = certificate.save(tmp_path / "x.proof")
    x = np.load(given)
    assert certificate.claim["input"]["shape"] == list(x.shape) == [1, 4, 4]
    said = check.check(proof, model, given)
    assert check.check(proof, model, npy(x[None])) == said
    for other in (x[None, None], x[0], x.astype(np.float64), x.reshape(1, 16)):
        with pytest.raises(check.Rejected, match=r"another input, of shape \[1, 4, 4\] and SHA-256 [0-9a-f]{64}; this"):
            check.check(proof, model, npy(other))
