"""Certificates of properties with changes: of the proof, the claim, the model, or the VNN-LIB text.

What an accepted certificate claims is compared with the exact answer. The text is read by Proofmap's own reader, which
shares no code with the checker. A box and a case are decided by one linear program for each activation pattern, and a
point by fractions.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import warnings
import zipfile
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import numpy_helper

from fuzz.checker import forgeries
from fuzz.checker.forgeries import Bundle, Change
from fuzz.checker.trial import Finding, Trial
from fuzz.hunting.draw import Draw, Undrawn
from proofmap.errors import FileError
from proofmap.proof import check as checker
from proofmap.sources.vnnlib.assertions import Assertions, Row
from tests.bounds.exact import exact_depth
from tests.graph.onnx.files import Array
from tests.proof.making import mlp_file, npy
from tests.proof.properties import drawn_property, exactly_at, point_members, property_members, text_of

BASES = 24
_SLACK = 1e-7  # what a linear program is off by


@cache
def base(number: int) -> Bundle:
    """An accepted certificate: two of three prove that a property holds, and half of these divide a part by signs."""
    for seed in range(1000):
        random = np.random.default_rng([23, number, seed])
        with TemporaryDirectory() as folder:
            path = Path(folder) / "p.vnnlib"
            model = mlp_file(Path(folder) / "net.onnx", (2, 4, 3), 100 * number + seed)
            regions = drawn_property(random, _layers(model.read_bytes()), -1.0 if number % 3 else 0.5)
            text = text_of(regions, 3)
            path.write_text(text)
            if number % 3:
                members = property_members(model, text, random, 2, split=number % 3 == 2)
            else:
                low, high = (np.array([*map(float, end)]) for end in (regions[0].lower, regions[0].upper))
                members = point_members(model, text, [0, 0], random.uniform(low, high).astype(np.float32))
            bundle = Bundle(list(members.items()), model.read_bytes(), text.encode())
            try:
                checker.read_certificate(bundle.proof(), bundle.model, path)
            except checker.Rejected:
                continue
            return bundle
    raise AssertionError("no property is certified")


def _layers(model: bytes) -> list[tuple[Array, Array]]:
    found = forgeries._layers(model)
    if found is None:
        raise Undrawn("another network")
    return found


# --- changes ---


def weights_changed(draw: Draw, one: Bundle) -> Bundle:
    """The weights of rows: none, negative ones, those of another row or type."""
    name = draw.pick([name for name, _ in one.members if name.endswith("weights.npy")])
    array = checker.read_array(one.member(name))
    kind = draw.whole(0, 5)
    if kind == 0:
        array = array * 0
    elif kind == 1:
        array = -array.astype(np.int8)
    elif kind == 2:
        array = array.astype(draw.pick([np.int64, np.float64, np.uint16]))
    elif kind == 3:
        array = array[:, ::-1]
    elif kind == 4:
        array = np.roll(array, 1, 0)
    else:
        array = np.concatenate([array, array[:1]], draw.whole(0, 1)) if draw.chance(0.5) else array[1:]
    return one.put(name, npy(np.ascontiguousarray(array)))


def halvings_changed(draw: Draw, one: Bundle) -> Bundle:
    """The parts: a half left out, one too many, another input, a number that is none."""
    array = checker.read_array(one.member("halvings.npy")).tolist()
    at, kind = draw.whole(0, len(array) - 1), draw.whole(0, 4)
    if kind == 0:
        del array[at]
    elif kind == 1:
        array.insert(at, draw.pick([-1, 0, 1]))
    elif kind == 2:
        array[at] = draw.pick([-1, -2, 0, 1, 2, 9])
    elif kind == 3:
        array = array[: max(1, at)]
    else:
        array = [*array[at:], *array[:at]]
    return one.put("halvings.npy", npy(np.array(array, np.int32)))


def point_changed(draw: Draw, one: Bundle) -> Bundle:
    """The point: a step, out of the box by one ulp, or another type."""
    array = checker.read_array(one.member("point.npy")).copy()
    at, kind = draw.whole(0, array.size - 1), draw.whole(0, 3)
    if kind == 0:
        array[at] += draw.pick([1e-12, -1e-9, 1e-3, 0.1, -0.1, 1.0])
    elif kind == 1:
        array[at] = np.nextafter(array[at], draw.pick([-9.0, 9.0]))
    elif kind == 2:
        array = array.astype(draw.pick(["<f4", ">f8", "<i8"]))
    else:
        array = draw.pick([array[::-1], array[None], array[:-1], np.append(array, 0.0), array * np.nan])
    return one.put("point.npy", npy(np.ascontiguousarray(array)))


def text_changed(draw: Draw, one: Bundle) -> Bundle:
    """The property: a number, a sign, a row or a case of it."""
    text, kind = one.x.decode(), draw.whole(0, 6)
    numbers = [*re.finditer(r"(?<=[ (])-?\d+\.\d+", text)]
    if kind < 3:
        at = draw.pick(numbers)
        value = Fraction(at.group())
        step = draw.pick([Fraction(1, 10**12), -Fraction(1, 10**12), Fraction(1, 100), -Fraction(1, 10), Fraction(1)])
        text = text[: at.start()] + f"{float(value + step):.15f}" + text[at.end() :]
    elif kind == 3:
        at = draw.pick([*re.finditer(r"\((<=|<|>=|>) ", text)])
        text = text[: at.start()] + draw.pick(["(<= ", "(< ", "(>= ", "(> "]) + text[at.end() :]
    elif kind == 4:
        at = draw.pick([*re.finditer(r"\([<>]=? [^()]*(\([^()]*(\([^()]*\)[^()]*)*\))?[^()]*\)", text)])
        text = text[: at.start()] + text[at.end() :]
    elif kind == 5:
        text = text.replace("(assert (or", draw.pick(["(assert (and", "(assert (or (and", "(assert (not"]), 1)
    else:
        place = draw.whole(0, len(text) - 1)
        text = text[:place] + draw.pick("0123456789.-()XY_;<>= \r\n|") + text[place + draw.whole(0, 1) :]
    return replace(one, x=text.encode())


def other_property(draw: Draw, one: Bundle) -> Bundle:
    """The property, the model or the proof of another certificate."""
    other = base(draw.whole(0, BASES - 1))
    return draw.pick([replace(one, x=other.x), replace(one, model=other.model), replace(one, members=other.members)])


def weight_of_model(draw: Draw, one: Bundle) -> Bundle:
    """A weight or a bias of the model, some by one ulp."""
    model = onnx.ModelProto.FromString(one.model)
    held = draw.pick(list(model.graph.initializer))
    array = numpy_helper.to_array(held).copy()
    at = draw.whole(0, array.size - 1)
    array.flat[at] = draw.pick([np.nextafter(array.flat[at], np.float32(9)), -array.flat[at], array.flat[at] + 1])
    held.CopyFrom(numpy_helper.from_array(array, held.name))
    return replace(one, model=model.SerializeToString())


CHANGES: dict[str, Change] = {
    change.__name__: change
    for change in (
        *(weights_changed, halvings_changed, point_changed, text_changed, other_property, weight_of_model),
        *(forgeries.renamed_member, forgeries.swapped_members, forgeries.doubled_member, forgeries.zip_bytes),
        *(forgeries.member_more_or_less, forgeries.claim_field, forgeries.array_changed, forgeries.array_bytes),
    )
}


def sealed(one: Bundle) -> Bundle:
    """With the hashes of the files as they are now."""
    try:
        claim = json.loads(one.member("claim.json"))
        claim["model"]["sha256"] = hashlib.sha256(one.model).hexdigest()
        claim["property"]["sha256"] = hashlib.sha256(one.x).hexdigest()
        return one.put("claim.json", json.dumps(claim).encode())
    except Exception:  # what it would be sealed with is damaged
        return one


def forged(seed: int) -> tuple[Bundle, tuple[str, ...]]:
    """A base with one to three changes, mostly with its hashes in order."""
    draw = Draw("property", seed)
    one, names = forgeries.with_changes(draw, base(draw.whole(0, BASES - 1)), CHANGES)
    return (sealed(one) if not one.packed and draw.chance(0.8) else one), names


# --- the truth ---


def judged(seed: int) -> Trial:
    """Whether an accepted forgery is true."""
    one, names = forged(seed)
    with warnings.catch_warnings(), np.errstate(all="ignore"), TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        path = Path(folder) / "p.vnnlib"
        path.write_bytes(one.x)
        try:
            claim = checker.read_certificate(one.proof(), one.model, path)
            assert isinstance(claim, checker.PropertyClaim)
            why = lie(one, holds=claim.holds)
        except checker.Rejected as error:
            return Trial({"properties": 1, "rejected": 1}, str(error))
        except Exception as error:  # neither accepted nor rejected, or accepted and cannot be read by others
            why = f"{type(error).__name__}: {error}"
    if why:
        files = {"a.proof": one.proof(), "net.onnx": one.model, "p.vnnlib": one.x}
        return Trial({"properties": 1, "wrong": 1}, "", Finding(seed, "false", why, names, files))
    return Trial({"properties": 1, "accepted": 1}, f"accepted: {', '.join(names)}")


def lie(one: Bundle, *, holds: bool) -> str:
    """Why the claim of a certificate is false, or nothing."""
    try:
        stated, layers = Assertions.read(one.x.decode(), "the text"), _layers(one.model)
    except FileError as error:
        return f"Proofmap does not read the property: {error}"
    if holds:
        for box in stated.boxes():
            for case in box.cases:
                deep = _depth(layers, case, np.array(box.lower), np.array(box.upper))
                if deep > _SLACK:
                    return f"a point of a box is in a case, by {deep}"
        return ""
    with zipfile.ZipFile(io.BytesIO(one.proof())) as file:
        point = np.load(io.BytesIO(file.read("point.npy")))
    exact = [Fraction(v) for v in point.tolist()]
    outputs = exactly_at(layers, exact)
    for box in stated.boxes():
        near = (np.array(box.lower) <= point).all() and (point <= np.array(box.upper)).all()
        if near and any(all(_met(row, outputs) for row in case) for case in box.cases):
            return ""
    return f"the point {point} violates nothing"


def _met(row: Row, outputs: list[Fraction]) -> bool:
    value = row.constant + sum((a * outputs[k] for k, a in row.coefficients.items()), Fraction(0))
    return value < 0 if row.strict else value <= 0


def _depth(layers: list[tuple[Array, Array]], case: list[Row], low: Array, high: Array) -> float:
    rows = np.array([[float(row.coefficients.get(k, 0)) for k in range(len(layers[-1][1]))] for row in case])
    return exact_depth(layers, rows, np.array([float(row.constant) for row in case]), low, high)
