"""Certificates, models and inputs with changes: what is still accepted has to be true.

A change is one at the level of the zip, of JSON, of an array, of the model or of the input, and the hashes may be made
to fit again. What an accepted file claims is read here a second time, and compared with the exact overlap: every
activation pattern of the network, one linear program each (over balls of another norm than ∞, with points).
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from fuzz.checker import runtime, wire
from fuzz.checker.trial import Finding, Trial
from fuzz.hunting.draw import Draw, Undrawn
from proofmap.proof import check as checker
from tests.bounds.exact import exact_maximum
from tests.graph.onnx.files import Array
from tests.proof.making import BALL, contrastive_members, members_of, mlp_file, npy, output_members, sufficient_members
from tests.proof.test_check_tree import grown, opens

Members = list[tuple[str, bytes]]  # a zip may have two of one name
_SLACK = 1e-6  # what a linear program is off by, and float32


@dataclass(frozen=True)
class Bundle:
    """A certificate as the members of its zip, and the files that it is about."""

    members: Members
    model: bytes
    x: bytes
    packed: bytes = b""  # the zip, where more than its members is changed

    def proof(self) -> bytes:
        return self.packed or zipped(self.members)

    def member(self, name: str) -> bytes:
        return next(data for one, data in self.members if one == name)

    def put(self, name: str, data: bytes) -> Bundle:
        """With other content of a member."""
        return replace(self, members=[(one, data if one == name else old) for one, old in self.members])


def zipped(members: Members, kind: int = zipfile.ZIP_STORED) -> bytes:
    """A zip without dates."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", kind) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name that is there twice
        for name, data in members:
            file.writestr(zipfile.ZipInfo(name), data, kind)
    return out.getvalue()


BALLS: tuple[dict[str, Any], ...] = (
    BALL,
    {**BALL, "eps": "0.3"},
    {**BALL, "domain": None, "eps": "0.1"},
    {**BALL, "half": "+", "eps": "0.2"},
    {**BALL, "relative": True, "eps": "0.25"},
    {**BALL, "norm": "2", "eps": "0.2"},
    {**BALL, "norm": "1", "eps": "0.2"},
)
STATEMENTS: tuple[dict[str, Any], ...] = (
    {"kind": "output", "entries": [0], "reduce": None, "direction": "up", "centre": "0.125"},
    {"kind": "output", "entries": [1], "reduce": None, "direction": "down", "centre": "-0.1"},
    {"kind": "output", "entries": [2], "reduce": None, "direction": "both", "centre": "0.0"},
    {"kind": "output", "entries": [0, 2], "reduce": "mean", "direction": "both", "centre": "0.3"},
    {"kind": "output", "entries": [1, 2, 0], "reduce": "maximum", "direction": "up", "centre": "0"},
    {"kind": "label", "entry": 1, "on": True},
    {"kind": "label", "entry": 2, "on": False},
)
SETS: tuple[
    tuple[dict[str, Any], dict[str, Any], str | None], ...
] = (  # what holds, the ball, and the limit of an output
    ({"kind": "decision"}, {**BALL, "eps": "0.5"}, None),
    ({"kind": "decision"}, {**BALL, "eps": "0.75", "norm": "2"}, None),
    ({"kind": "decision"}, {**BALL, "eps": "0.875", "norm": "1"}, None),
    ({"kind": "decision"}, {**BALL, "eps": "0.625", "domain": None}, None),
    ({"kind": "label", "entry": 0}, {**BALL, "eps": "0.375"}, None),
    ({"kind": "output", "entries": [1], "reduce": None, "direction": "both", "centre": "0.1"}, BALLS[1], "0.375"),
)
CONTRASTS: tuple[tuple[dict[str, Any], dict[str, Any], str | None], ...] = (  # the same of contrastive sets
    ({"kind": "decision"}, {**BALL, "eps": "0.5"}, None),
    ({"kind": "decision", "aimed": True}, {**BALL, "eps": "0.75"}, None),
    ({"kind": "decision"}, {**BALL, "eps": "0.75", "norm": "2"}, None),
    ({"kind": "decision"}, {**BALL, "eps": "0.875", "norm": "1"}, None),
    ({"kind": "label", "entry": 0}, {**BALL, "eps": "0.375"}, None),
    ({"kind": "output", "entries": [1], "reduce": None, "direction": "both", "centre": "0.1"}, BALLS[1], "0.375"),
)
# Certificates of a decision; those of the statements follow, then those of sufficient sets, and of contrastive sets.
DECISIONS = 2 * len(BALLS)
STATED = DECISIONS + 2 * len(STATEMENTS)
FREED = STATED + len(SETS)
BASES = FREED + len(CONTRASTS)


@cache
def base(number: int) -> Bundle:
    """An honest certificate: of one ball after the other, with a tree for every second; then of each statement."""
    if number >= FREED:
        return _contrast_base(*CONTRASTS[number - FREED])
    if number >= STATED:
        return _set_base(*SETS[number - STATED])
    random, ball = np.random.default_rng([13, number]), BALLS[number % len(BALLS)]
    x, mask = random.integers(0, 9, 3).astype(np.float32) / np.float32(8), np.array([0, 1, 0])
    with TemporaryDirectory() as folder:
        model = mlp_file(Path(folder) / "net.onnx", (3, 4, 3), number % 3)
        if number < DECISIONS:
            target = int(_logits(model.read_bytes(), x[None])[0].argmax())
            members, split = members_of(model, x, mask, target, ball), number >= len(BALLS)
        else:
            which = number - DECISIONS
            members = output_members(model, x, mask, STATEMENTS[which % len(STATEMENTS)], ball)
            split = which >= len(STATEMENTS)
        if split:
            members = _with_tree(members, model, x, random)
        return Bundle(list(members.items()), model.read_bytes(), npy(x))


def _set_base(about: dict[str, Any], ball: dict[str, Any], limit: str | None) -> Bundle:
    """An honest certificate of a sufficient set, with a free group and a necessary one."""
    for seed in range(100):
        x = np.random.default_rng([17, seed]).integers(0, 9, 3).astype(np.float32) / np.float32(8)
        with TemporaryDirectory() as folder:
            model = mlp_file(Path(folder) / "net.onnx", (3, 4, 3), seed)
            members = sufficient_members(model, x, np.arange(3), _stated_about(about, model, x), ball, limit)
            sets = json.loads(members["claim.json"])["statement"]
            if sets["free"] and sets["necessary"]:
                return Bundle(list(members.items()), model.read_bytes(), npy(x))
    raise AssertionError("no network has a free group and a necessary one")


def _contrast_base(about: dict[str, Any], ball: dict[str, Any], limit: str | None) -> Bundle:
    """An honest certificate of a contrastive set, with several groups and a proof about smaller sets where possible."""
    found: list[tuple[int, Bundle]] = []
    for seed in range(60):
        x = np.random.default_rng([19, seed]).integers(0, 9, 3).astype(np.float32) / np.float32(8)
        with TemporaryDirectory() as folder:
            model = mlp_file(Path(folder) / "net.onnx", (3, 4, 3), seed)
            members = contrastive_members(model, x, np.arange(3), _stated_about(about, model, x), ball, limit)
            sets = json.loads(members["claim.json"])["statement"]
            if sets["sets"]:
                found.append((sets["least"], Bundle(list(members.items()), model.read_bytes(), npy(x))))
                if sets["least"] > 1:
                    break
    return max(found, key=lambda one: one[0])[1]


def _stated_about(about: dict[str, Any], model: Path, x: Array) -> dict[str, Any]:
    """What holds at the input: its class against all others or, if a class is aimed at, the next one; its label."""
    logits = _logits(model.read_bytes(), x[None])[0]
    target = int(logits.argmax())
    stated = {name: value for name, value in about.items() if name != "aimed"}
    if about["kind"] == "decision":
        rivals = [c for c in range(3) if c != target]
        stated |= {"target": target, "rivals": rivals[:1] if about.get("aimed") else rivals}
    elif about["kind"] == "label":
        stated["on"] = bool(logits[0] > 0)
    return stated


def _with_tree(members: dict[str, bytes], model: Path, x: Array, random: np.random.Generator) -> dict[str, bytes]:
    claim = json.loads(members["claim.json"])
    network = checker.read_network(model, x.shape)
    statement = checker.read_statement(claim, network)
    question = checker.Question(x, claim["ball"], np.array([0, 1, 0]), 2, statement)
    rows = question.statement.rows
    proof = {"intervals": checker.read_array(members["intervals.npy"])}
    split = grown(proof, [0] if opens(proof) else [], random, rows)
    derived = checker.Prover(network, question).derive(split)
    split |= {"upper": derived[0], "reals-upper": derived[1]}
    return {**members, **{f"{name}.npy": npy(array) for name, array in split.items()}}


# --- changes ---

Change = Callable[[Draw, Bundle], Bundle]


def _name(draw: Draw, one: Bundle, *, arrays: bool = False) -> str:
    return draw.pick([name for name, _ in one.members if not arrays or name != "claim.json"])


def renamed_member(draw: Draw, one: Bundle) -> Bundle:
    old, names = _name(draw, one), [name for name, _ in one.members]
    new = draw.pick([*names, "more.npy", "0.05", old.upper(), "./" + old, "..\\" + old, old + " ", "é.npy"])
    return replace(one, members=[(new if name == old else name, data) for name, data in one.members])


def swapped_members(draw: Draw, one: Bundle) -> Bundle:
    first, second = _name(draw, one, arrays=True), _name(draw, one, arrays=True)
    held = one.member(first)
    return one.put(first, one.member(second)).put(second, held)


def doubled_member(draw: Draw, one: Bundle) -> Bundle:
    name, other = _name(draw, one), _name(draw, one)
    return replace(one, members=[*one.members, (name, one.member(other))])


def member_more_or_less(draw: Draw, one: Bundle) -> Bundle:
    name = _name(draw, one)
    if draw.chance(0.5):
        return replace(one, members=[(n, data) for n, data in one.members if n != name])
    return replace(
        one, members=[*one.members, (draw.pick(["a.npy", "a.txt", "intervals", "tree.npy"]), one.member(name))]
    )


def zip_bytes(draw: Draw, one: Bundle) -> Bundle:
    """The packed file: bytes changed, cut off or added, members packed in another way."""
    data = bytearray(
        zipped(one.members, draw.pick([*[zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED] * 4, zipfile.ZIP_BZIP2]))
    )
    at = draw.whole(0, len(data) - 1)
    kind = draw.whole(0, 5)
    if kind < 3:
        data[at] ^= 1 << draw.whole(0, 7)
    elif kind == 3:
        del data[at:]
    else:
        data = bytearray(b"junk") + data if kind == 4 else data + b"junk"
    return replace(one, packed=bytes(data))


LEAVES: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        2,
        -1,
        2**70,
        0.5,
        "",
        "0",
        "1",
        "inf",
        "2",
        "+",
        "-",
        "nan",
        "0x1.0p-3",
        "1e-400",
        [],
        {},
    ),
    *([0, 1], ["0", "1"], [0], "upper.npy", "lower.npy", "mask.npy", "intervals.npy", "0.0500000001", "5e-2", "0.049"),
]


def paths(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
    return [path for key, one in items for path in [(*before, key), *paths(one, (*before, key))]]


def into(claim: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        claim = claim[key]
    return claim


def claim_field(draw: Draw, one: Bundle) -> Bundle:
    """A field of the claim: another value, none, one more, the value of another field."""
    claim = json.loads(one.member("claim.json"))
    every = paths(claim)
    path = draw.pick(every)
    part, kind = into(claim, path[:-1]), draw.whole(0, 5)
    if kind < 3:
        part[path[-1]] = draw.pick(LEAVES)
    elif kind == 3:
        part[path[-1]] = into(claim, draw.pick(every))
    elif kind == 4:
        del part[path[-1]]
    elif isinstance(part, dict):
        part[draw.pick(["more", "eps", "upper", "prepare"])] = draw.pick(LEAVES)
    else:
        part.append(draw.pick(LEAVES))
    return one.put("claim.json", json.dumps(claim).encode())


def larger_claim(draw: Draw, one: Bundle) -> Bundle:
    """Another ball, other classes or groups, with the same numbers."""
    claim, kind = json.loads(one.member("claim.json")), draw.whole(0, 7)
    ball = claim["ball"]
    if kind == 0:
        ball["eps"] = draw.pick(["0.5", "1", "0.30000000000000001", "0.050000000000000003", "1e0", (0.4).hex()])
    elif kind == 1:
        ball["domain"] = draw.pick([None, ["-1", "2"], ["0", "1.0000001"], ["1", "0"], ["0x0.0p+0", "0x1.8p+0"]])
    elif kind == 2:
        ball["norm"] = draw.pick(["inf", "1", "2"])
    elif kind == 3:
        ball["half"], ball["relative"] = draw.pick([None, "+", "-"]), draw.chance(0.5)
    elif kind == 4:
        claim["target"] = draw.whole(0, 2)
    elif kind == 5:
        claim["rivals"] = draw.pick([[0], [1], [2], [0, 1], [0, 2], [1, 2], [1, 0, 2], [1, 1], []])
    elif kind == 6:
        claim["groups"] = draw.pick([None, {"count": 1, "mask": "mask.npy"}, {"count": 3, "mask": "mask.npy"}])
    else:
        claim["model"]["prepare"] = draw.pick([{"mean": [0.0], "std": [1.0]}, {"mean": [0.1], "std": [0.5]}])
    return one.put("claim.json", json.dumps(claim).encode())


def other_statement(draw: Draw, one: Bundle) -> Bundle:
    """Another output, direction, centre, region or state of a label, with the same numbers."""
    claim = json.loads(one.member("claim.json"))
    if "statement" not in claim:
        raise Undrawn("a decision")
    stated = claim["statement"]
    numbers = [0, 1, 2, 3, -1, 2**70, True, 1.0, None, "0", [0]]
    choices: dict[str, list[Any]] = {
        "entries": [[0], [1], [2], [3], [-1], [0, 1], [2, 1], [0, 1, 2], [1, 1], [], [True], [0.0], 1, None, "01"],
        "reduce": [None, "mean", "maximum", "minimum", "", 0, ["mean"]],
        "direction": ["up", "down", "both", "UP", "", None, ["up"]],
        "centre": [
            "0",
            "-1",
            "1",
            "0.3000001",
            "1e-9",
            "nan",
            "inf",
            "-inf",
            "1e999",
            "0x1.8p-3",
            0.3,
            None,
            "",
            "0.3 ",
        ],
        "kind": ["output", "label", "decision", "sufficient", "contrastive", None, ["output"]],
        "entry": numbers,
        "on": [True, False, None, 1, 0, "true"],
    }
    for name in draw.pick([[draw.pick(sorted(stated))], sorted(choices), ["entries", "reduce"], ["entry", "on"]]):
        if name in stated or draw.chance(0.1):
            stated[name] = draw.pick(choices.get(name, LEAVES))
    if draw.chance(0.1):
        claim["version"] = draw.pick([3, 4, 6, "5", 5.0])
    return one.put("claim.json", json.dumps(claim).encode())


def other_sets(draw: Draw, one: Bundle) -> Bundle:
    """Other free or necessary groups, another limit, or points that move further or to another group."""
    claim = json.loads(one.member("claim.json"))
    sets = claim.get("statement", {})
    if sets.get("kind") == "contrastive":
        return other_changes(draw, one)
    if sets.get("kind") != "sufficient":
        raise Undrawn("no sets of groups")
    kind = draw.whole(0, 5)
    if kind == 5:
        name, sets["points"], sets["necessary"] = sets["points"], None, []
        sets["free"] = draw.pick([[], [0, 1], [0, 2], [1, 2], [0, 1, 2]])
        one = replace(one, members=[member for member in one.members if member[0] != name])
    elif kind == 0:
        sets["free"] = draw.pick([[], [0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2], [3], [1, 1], None])
    elif kind == 1:
        sets["necessary"] = draw.pick([[], [0], [1], [2], [0, 1], [2, 0], [2, 1], [0, 1, 2], [0, 0], [-1], [True]])
    elif kind == 2:
        sets["limit"] = draw.pick([None, "0.1", "0.37500001", "0.5", "9", "0", "-1", "nan"])
    elif kind == 3:
        both = sets["free"] + sets["necessary"]
        sets["free"], sets["necessary"] = both[: draw.whole(0, 3)], both[draw.whole(0, 3) :]
    else:
        x, points = checker.read_array(one.x), np.array(checker.read_array(one.member(sets["points"])))
        share = np.float32(draw.pick([0, 0.5, 0.9, 0.999, 1.0000001, 1.001, 1.5, -1]))
        points = x[:, None] + share * (points - x[:, None])
        if draw.chance(0.3):
            points = np.roll(points, 1, draw.whole(0, 1))
        return one.put(sets["points"], npy(points))
    return one.put("claim.json", json.dumps(claim).encode())


def other_changes(draw: Draw, one: Bundle) -> Bundle:
    """Other contrastive sets, another least number or limit, or points that move further or to another group."""
    claim = json.loads(one.member("claim.json"))
    sets = claim["statement"]
    kind = draw.whole(0, 5)
    if kind == 0:
        some = [
            [],
            [[]],
            [[0]],
            [[1]],
            [[2]],
            [[0, 1]],
            [[1, 2]],
            [[0, 2]],
            [[0, 1, 2]],
            [[0, 0]],
            [[3]],
            [[0], [1]],
            None,
        ]
        sets["sets"] = draw.pick(some)
    elif kind == 1:
        sets["least"] = draw.pick([0, 1, 2, 3, 4, 5, -1, True, 2.0, None, "2"])
    elif kind == 2:
        sets["limit"] = draw.pick([None, "0.1", "0.37500001", "0.5", "9", "0", "-1", "nan"])
    elif kind == 3 and "rivals" in sets["about"]:
        sets["about"]["rivals"] = draw.pick([[0], [1], [2], [0, 1], [0, 2], [1, 2], [2, 1], [], [1, 1]])
    elif kind == 4 and sets["points"] is not None:
        name, sets["points"], sets["sets"] = sets["points"], None, []
        sets["least"] = draw.pick([1, 2, 3, 4])
        one = replace(one, members=[member for member in one.members if member[0] != name])
    else:
        x, points = checker.read_array(one.x), np.array(checker.read_array(one.member(sets["points"])))
        share = np.float32(draw.pick([0, 0.5, 0.9, 0.999, 1.0000001, 1.001, 1.5, -1]))
        points = x[:, None] + share * (points - x[:, None])
        if draw.chance(0.3):
            points = np.roll(points, 1, 0)
        return one.put(sets["points"], npy(points))
    return one.put("claim.json", json.dumps(claim).encode())


def claim_text(draw: Draw, one: Bundle) -> Bundle:
    """JSON that readers may take in different ways."""
    text = one.member("claim.json").decode()
    kind = draw.whole(0, 6)
    if kind == 0:
        text = text.replace('"eps":', '"eps": "9", "eps":')
    elif kind == 1:
        text = text + draw.pick([" ", "\n", "{}", "\0"])
    elif kind == 2:
        text = "\ufeff" + text
    elif kind == 3:
        return one.put("claim.json", text.encode("utf-16"))
    elif kind == 4:
        text = text.replace('"0"', draw.pick(["NaN", "-Infinity", "1e999", '"00"', '"+0"', '"0.0"', '" 0"', "0"]))
    elif kind == 5:
        text = text.replace('"target"', '"t\\u0061rget"')
    else:
        at = draw.whole(0, len(text) - 1)
        text = text[:at] + draw.pick('0123456789.,"{}[]-e') + text[at + 1 :]
    return one.put("claim.json", text.encode())


def tightened(draw: Draw, one: Bundle) -> Bundle:
    """Upper ends lower, or lower ends higher."""
    name = draw.pick(["upper.npy", "reals-upper.npy", "lower.npy", "reals-lower.npy"])
    array = np.array(checker.read_array(one.member(name)))
    size = draw.pick([1e-9, 1e-6, 1e-3, 0.1, 1.0, 10.0, 1e300]) * (-1 if "upper" in name else 1)
    if draw.chance(0.2):
        array = np.nextafter(array, array + size)
    elif draw.chance(0.5):
        array[draw.whole(0, array.size - 1)] += size
    else:
        array = array + size
    return one.put(name, npy(array))


def _entry(draw: Draw, array: Array) -> Array:
    array = array.copy()
    if not array.size:
        raise Undrawn("no entry")
    at = draw.whole(0, array.size - 1)
    old = array.flat[at]
    odd = (
        [0, 1, -1, 2, 127]
        if array.dtype.kind in "iu"
        else [0, -old, old + 1e-3, old - 1e-3, np.nan, np.inf, -np.inf, 1e30]
    )
    with np.errstate(all="ignore"):
        array.flat[at] = np.asarray(draw.pick(odd)).astype(array.dtype)
    return array


def array_changed(draw: Draw, one: Bundle) -> Bundle:
    """An array: an entry, its order, its shape, its type."""
    name = _name(draw, one, arrays=True)
    return one.put(name, npy(change_array(draw, checker.read_array(one.member(name)))))


def change_array(draw: Draw, array: Array) -> Array:
    """Another array of nearly the same numbers."""
    kind = draw.whole(0, 9)
    with np.errstate(all="ignore"):
        if kind < 4:
            array = _entry(draw, array)
        elif kind == 4:
            array = array[..., ::-1]
        elif kind == 5:
            array = draw.pick([array[None], array[:-1], array.T, np.concatenate([array, array]), array.reshape(-1)])
        elif kind == 6:
            array = array.astype(draw.pick(["<f4", ">f8", "<f2", "<i8", "u1", "<i2", "longdouble", "bool", "<c16"]))
        elif kind == 7:
            array = array * 0
        elif kind == 8:
            array = np.roll(array, 1, -1)
        else:
            array = array - np.asarray(draw.pick([1, 0.01, 100])).astype(array.dtype)
    return np.ascontiguousarray(array)


def array_bytes(draw: Draw, one: Bundle) -> Bundle:
    """The header of an array, or its bytes."""
    name = _name(draw, one, arrays=True)
    data = one.member(name)
    pairs = [
        (b"<f8", b">f8"),
        (b"False", b"True "),
        (b"(3,)", b"(2,)"),
        (b"<f8", b"<i8"),
        (b"<f4", b"<i4"),
        (b"(3,)", b"(3, "),
    ]
    if draw.chance(0.4):
        return one.put(name, data.replace(*draw.pick(pairs)))
    if draw.chance(0.3):
        return one.put(name, draw.pick([data[:-1], data + b"\0", data + data, data[:6] + b"\x03" + data[7:]]))
    content = bytearray(data)
    content[draw.whole(0, len(content) - 1)] ^= 1 << draw.whole(0, 7)
    return one.put(name, bytes(content))


def other_files(draw: Draw, one: Bundle) -> Bundle:
    """The model, the input or the proof of another certificate."""
    other = base(draw.whole(0, BASES - 1))
    kind = draw.whole(0, 3)
    if kind == 0:
        return replace(one, model=other.model)
    if kind == 1:
        return replace(one, x=other.x)
    if kind == 2:
        return replace(one, members=other.members)
    name = _name(draw, one, arrays=True)
    if name not in dict(other.members):
        raise Undrawn("no tree")
    return one.put(name, other.member(name))


def model_changed(draw: Draw, one: Bundle) -> Bundle:
    if draw.chance(0.5):
        return replace(one, model=wire.changed(draw, one.model)[0])
    model = onnx.ModelProto.FromString(one.model)
    held = draw.pick(list(model.graph.initializer))
    held.CopyFrom(numpy_helper.from_array(_entry(draw, numpy_helper.to_array(held)), held.name))
    return replace(one, model=model.SerializeToString())


def input_changed(draw: Draw, one: Bundle) -> Bundle:
    x = checker.read_array(one.x)
    kind = draw.whole(0, 3)
    if kind == 0:
        return replace(one, x=npy(_entry(draw, x)))
    if kind == 1:
        return replace(one, x=npy(draw.pick([x[None], x[:, None], x[::-1], x[:-1], x + np.float32(0.125)])))
    if kind == 2:
        return replace(one, x=npy(x.astype(draw.pick(["<f8", ">f4", "<f2", "<i4"]))))
    data = bytearray(one.x)
    data[draw.whole(0, len(data) - 1)] ^= 1 << draw.whole(0, 7)
    return replace(one, x=bytes(data))


CHANGES: dict[str, Change] = {
    change.__name__: change
    for change in (
        *(renamed_member, swapped_members, doubled_member, member_more_or_less, zip_bytes, claim_field, larger_claim),
        *(
            other_statement,
            other_sets,
            claim_text,
            tightened,
            array_changed,
            array_bytes,
            other_files,
            model_changed,
            input_changed,
        ),
    )
}


def sealed(one: Bundle) -> Bundle:
    """With the hashes of the files as they are now."""
    try:
        claim = json.loads(one.member("claim.json"))
        x = checker.read_array(one.x)
        claim["model"]["sha256"] = hashlib.sha256(one.model).hexdigest()
        shape = claim["input"].get("shape", [])
        shape = shape if list(x.shape) == [1, *shape] else list(x.shape)
        claim["input"] = {"sha256": hashlib.sha256(x.astype("<f4").tobytes()).hexdigest(), "shape": shape}
        return one.put("claim.json", json.dumps(claim).encode())
    except Exception:  # what it would be sealed with is damaged
        return one


def forged(seed: int) -> tuple[Bundle, tuple[str, ...]]:
    """A base with one to three changes, mostly with its hashes in order."""
    draw = Draw("forgery", seed)
    one, names = with_changes(draw, base(draw.whole(0, BASES - 1)), CHANGES)
    if not one.packed and draw.chance(0.8):
        one = sealed(one)
    return one, names


def with_changes(draw: Draw, one: Bundle, changes: Mapping[str, Change]) -> tuple[Bundle, tuple[str, ...]]:
    """A certificate with one to three changes, and their names."""
    names = list[str]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while len(names) < draw.pick([1, 1, 2, 3]):
            name = draw.pick(sorted(changes))
            try:
                one = changes[name](draw, one)
            except Exception:  # the change does not fit what earlier ones left
                if names:
                    break
                continue
            names.append(name)
            if one.packed:
                break
    return one, tuple(names)


# --- the truth ---


def judged(seed: int) -> Trial:
    """Whether an accepted forgery is true."""
    one, names = forged(seed)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            checker.check(one.proof(), one.model, one.x)
            why = lie(one)
        except checker.Rejected as error:
            return Trial({"forgeries": 1, "rejected": 1}, str(error))
        except Exception as error:  # neither accepted nor rejected, or accepted and cannot be read by others
            why = f"{type(error).__name__}: {error}"
    if why:
        files = {"a.proof": one.proof(), "net.onnx": one.model, "x.npy": one.x}
        return Trial({"forgeries": 1, "wrong": 1}, "", Finding(seed, "false", why, names, files))
    return Trial({"forgeries": 1, "accepted": 1}, f"accepted: {', '.join(names)}")


def lie(one: Bundle) -> str:
    """The first claim of a certificate that is false, or nothing."""
    with zipfile.ZipFile(io.BytesIO(one.proof())) as file:
        members = {name: file.read(name) for name in file.namelist()}
    claim = json.loads(members["claim.json"])
    arrays = {name: np.load(io.BytesIO(data)) for name, data in members.items() if name.endswith(".npy")}
    x = np.load(io.BytesIO(one.x)).reshape(-1).astype(np.float64)
    if claim["version"] == 5 and claim["statement"]["kind"] == "sufficient":
        return false_set(claim, arrays, one.model, x)
    if claim["version"] == 5 and claim["statement"]["kind"] == "contrastive":
        return false_contrast(claim, arrays, one.model, x)
    stated = json.dumps([claim["ball"], claim["groups"], stated_rows(claim, one.model), claim["model"]["prepare"]])
    mask = arrays[claim["groups"]["mask"]].reshape(-1) if claim["groups"] else np.zeros(0, np.int64)
    ends = tuple((name, arrays[name].tobytes()) for name in _named(claim["ball"]) if name in arrays)
    most = overlaps(stated, one.model, x.tobytes(), np.asarray(mask, np.int64).tobytes(), ends)
    pairs = [claim["claims"], *([claim["claims"]["reals"]] if claim["claims"]["reals"] else [])]
    for pair in pairs:
        upper = arrays[pair["upper"]].astype(np.float64)
        if upper.shape != most.shape or not (upper >= most - _SLACK * (1 + np.abs(most))).all():
            return f"upper ends {upper} below {most}"
        if pair["lower"] is not None:
            lower = arrays[pair["lower"]].astype(np.float64)
            if claim["ball"]["norm"] == "inf" and not (lower <= most + _SLACK * (1 + np.abs(most))).all():
                return f"lower ends {lower} above {most}"
    return ""


@dataclass(frozen=True)
class Stated:
    """What a certificate of sets states: its ball, rows, groups and limit, read a second time."""

    claim: dict[str, Any]
    arrays: dict[str, Array]
    model: bytes
    x: Array

    @property
    def sets(self) -> dict[str, Any]:
        stated: dict[str, Any] = self.claim["statement"]
        return stated

    @property
    def mask(self) -> Array:
        mask: Array = self.arrays[self.claim["groups"]["mask"]].reshape(-1)
        return mask

    @property
    def rows(self) -> list[tuple[dict[int, float], float]]:
        return stated_rows({**self.claim, "statement": self.sets["about"]}, self.model)

    @property
    def limit(self) -> Fraction:
        return Fraction(0) if self.sets["limit"] is None else _number(self.sets["limit"])

    @property
    def _ends(self) -> tuple[tuple[str, bytes], ...]:
        named = _named(self.claim["ball"])
        return tuple((name, self.arrays[name].tobytes()) for name in named if name in self.arrays)

    def reached(self, moves: Array) -> float:
        """The largest row where some variables alone move."""
        stated = json.dumps([self.claim["ball"], {"count": 1}, self.rows, self.claim["model"]["prepare"]])
        still = np.where(moves, 1, 0).astype(np.int64).tobytes()
        return float(overlaps(stated, self.model, self.x.tobytes(), still, self._ends)[1])

    def is_below(self, most: float) -> bool:
        """Whether an upper end of the claims is below a number."""
        claims = self.claim["claims"]
        held = [claims, *([claims["reals"]] if claims["reals"] else [])]
        return min(float(self.arrays[pair["upper"]][0]) for pair in held) < most - _SLACK * (1 + abs(most))

    def points(self, count: int) -> Array:
        """The stored points, in float64."""
        if not count:
            return np.zeros((0, len(self.x)))
        stored = np.moveaxis(self.arrays[self.sets["points"]], -1, 0)
        return stored.reshape(-1, len(self.x)).astype(np.float64)

    def leaves(self, point: Array, moves: Array) -> bool:
        """Whether a point moves other variables, or leaves the ball: its box, or the sum of its steps."""
        ball, x = self.claim["ball"], self.x
        low, high = _box(ball, x, {name: np.frombuffer(data) for name, data in self._ends})
        if ((point != x) & ~moves).any() or not ((point >= low - 1e-9) & (point <= high + 1e-9)).all():
            return True
        power = {"inf": 0, "1": 1, "2": 2}[ball["norm"]]
        steps = [abs(Fraction(a) - Fraction(b)) for a, b in zip(point.tolist(), x.tolist(), strict=True)]
        return bool(power and sum(step**power for step in steps) > _number(ball["eps"]) ** power)

    def largest(self, point: Array, rows: list[tuple[dict[int, float], float]] | None = None) -> Fraction:
        """The largest row at a point."""
        return _largest(self.rows if rows is None else rows, self.model, point, self.claim["model"]["prepare"])


def false_set(claim: dict[str, Any], arrays: dict[str, Array], model: bytes, x: Array) -> str:
    """The first part of a sufficient set that is false, or nothing."""
    stated = Stated(claim, arrays, model, x)
    sets, mask, limit = stated.sets, stated.mask, stated.limit
    moves = np.isin(mask, sets["free"])
    most = stated.reached(moves)
    if most > float(limit) + _SLACK:
        return f"the free groups {sets['free']} reach {most}, beyond {limit}"
    if stated.is_below(most):
        return f"an upper end is below {most}"
    for group, point in zip(sets["necessary"], stated.points(len(sets["necessary"])), strict=True):
        if group in sets["free"] or stated.leaves(point, moves | (mask == group)):
            return f"the point {point} of group {group} moves another group, or leaves the ball"
        reached = stated.largest(point)
        if not reached > limit:
            return f"the point of group {group} reaches {float(reached)}, not more than {limit}"
    return ""


def false_contrast(claim: dict[str, Any], arrays: dict[str, Array], model: bytes, x: Array) -> str:
    """The first part of contrastive sets that is false, or nothing."""
    stated = Stated(claim, arrays, model, x)
    sets, mask, limit, count = stated.sets, stated.mask, stated.limit, claim["groups"]["count"]
    every = combinations(range(count), min(sets["least"] - 1, count))
    most = max(stated.reached(np.isin(mask, few)) for few in every)
    if most > float(limit) + _SLACK:
        return f"fewer than {sets['least']} groups reach {most}, beyond {limit}"
    if stated.is_below(most):
        return f"an upper end is below {most}"
    for groups, point in zip(sets["sets"], stated.points(len(sets["sets"])), strict=True):
        if len({*groups}) < len(groups) or stated.leaves(point, np.isin(mask, groups)):
            return f"the point {point} of the set {groups} moves another group, or leaves the ball"
        reached, aims = stated.largest(point), sets["about"].get("rivals", [])
        if not reached > limit:
            return f"the point of the set {groups} reaches {float(reached)}, not more than {limit}"
        if len(aims) == 1:
            leads = [({aims[0]: 1.0, other: -1.0}, 0.0) for other in range(3) if other != aims[0]]
            if not all(stated.largest(point, [lead]) > 0 for lead in leads):
                return f"the point of the set {groups} does not have class {aims[0]}"
    return ""


def _largest(
    rows: list[tuple[dict[int, float], float]], model: bytes, point: Array, prepare: dict[str, Any] | None
) -> Fraction:
    """The largest row at a point: in fractions for dense networks, otherwise as float32 runs it, and a little more."""
    layers = _layers(model) if prepare is None else None
    if layers is None:
        if prepare is not None:
            point = (point - np.asarray(prepare["mean"] or 0)) / np.asarray(prepare["std"] or 1)
        value = [Fraction(v) for v in _logits(model, point.astype(np.float32)[None])[0].tolist()]
        slack = Fraction(_SLACK)
    else:
        value, slack = [Fraction(v) for v in point.tolist()], Fraction(0)
        for k, (weight, bias) in enumerate(layers):
            value = [max(v, Fraction(0)) for v in value] if k else value
            pairs = zip(weight.tolist(), bias.tolist(), strict=True)
            value = [sum((Fraction(a) * v for a, v in zip(row, value, strict=True)), Fraction(b)) for row, b in pairs]
    return slack + max(sum((Fraction(a) * value[k] for k, a in row.items()), Fraction(s)) for row, s in rows)


def stated_rows(claim: dict[str, Any], model: bytes) -> list[tuple[dict[int, float], float]]:
    """The rows of the statement, read a second time: coefficients of outputs by number, and a constant."""
    if claim["version"] < 5:
        return [({rival: 1.0, claim["target"]: -1.0}, 0.0) for rival in claim["rivals"]]
    stated = claim["statement"]
    if stated["kind"] == "decision":
        return [({rival: 1.0, stated["target"]: -1.0}, 0.0) for rival in stated["rivals"]]
    if stated["kind"] == "label":
        last = onnx.ModelProto.FromString(model).graph.node[-1].op_type
        sign = -1.0 if stated["on"] else 1.0
        return [({stated["entry"]: sign}, -sign * (0.5 if last == "Sigmoid" else 0.0))]
    centre = float(_number(stated["centre"]))
    if stated["reduce"] == "maximum":
        return [({k: 1.0}, -centre) for k in stated["entries"]]
    share = 1 / len(stated["entries"])
    signs = {"up": [1.0], "down": [-1.0], "both": [1.0, -1.0]}[stated["direction"]]
    return [(dict.fromkeys(stated["entries"], sign * share), -sign * centre) for sign in signs]


def _weights(form: dict[str, float], count: int) -> Array:
    """Coefficients of all outputs; the keys have been JSON."""
    weights = np.zeros(count)
    for k, value in form.items():
        weights[int(k)] = value
    return weights


def _named(ball: dict[str, Any]) -> list[str]:
    return [name for name in [ball["eps"], *(ball["domain"] or [])] if isinstance(name, str)]


@cache
def overlaps(stated: str, model: bytes, x: bytes, mask: bytes, named: tuple[tuple[str, bytes], ...]) -> Array:
    """The overlap on B and every B_u (1 + G,): exact for dense networks over boxes, otherwise reached at points."""
    ball, groups, forms, prepare = json.loads(stated)
    arrays = {name: np.frombuffer(data) for name, data in named}
    at, groups_of = np.frombuffer(x), np.frombuffer(mask, np.int64)
    low, high = _box(ball, at, arrays)
    layers = _layers(model) if prepare is None else None
    found = []
    for member in range(1 + (groups["count"] if groups else 0)):
        still = groups_of == member - 1 if member else np.zeros(len(at), bool)
        ends = np.where(still, at, low), np.where(still, at, high)
        if ball["norm"] == "inf" and layers is not None:
            rows = [(_weights(form, len(layers[-1][1])), shift) for form, shift in forms]
            found.append(max(exact_maximum(layers, row, *ends)[0] + shift for row, shift in rows))
            continue
        points = _points(ball, at, *ends)
        if prepare is not None:
            points = (points - np.asarray(prepare["mean"] or 0)) / np.asarray(prepare["std"] or 1)
        logits = _logits(model, points.astype(np.float32))
        rows = [(_weights(form, logits.shape[1]), shift) for form, shift in forms]
        found.append(max(float((logits @ row + shift).max()) for row, shift in rows))
    return np.array(found)


def _box(ball: dict[str, Any], x: Array, arrays: dict[str, Array]) -> tuple[Array, Array]:
    """The smallest box around the ball."""
    eps, low, high = (
        arrays[end] if end in arrays else np.full(len(x), float(_number(end)))
        for end in (ball["eps"], *(ball["domain"] or ["-1e9", "1e9"]))
    )
    if ball["relative"]:
        below, above = eps * (x - low), eps * (high - x)
    else:
        below, above = np.minimum(eps, x - low), np.minimum(eps, high - x)
    below, above = (np.maximum(side, 0) for side in (below, above))
    return x - below * (ball["half"] != "+"), x + above * (ball["half"] != "-")


def _number(text: str) -> Fraction:
    return Fraction(float.fromhex(text)) if "x" in text else Fraction(text)


def _points(ball: dict[str, Any], x: Array, low: Array, high: Array) -> Array:
    """Points of the ball, most of them on its surface."""
    random = np.random.default_rng(0)
    steps = np.where(
        random.random((400, len(x))) < 0.3,
        random.choice([-1.0, 0.0, 1.0], (400, len(x))),
        random.normal(size=(400, len(x))),
    )
    if ball["norm"] != "inf":
        norms = np.linalg.norm(steps, int(ball["norm"]), axis=1, keepdims=True)
        steps = steps / np.maximum(norms, 1e-9) * float(_number(ball["eps"])) * (1 - 1e-6)
        inside: Array = np.clip(x + steps, low, high)
        return inside
    return np.concatenate([np.where(steps > 0, high, low), low + (high - low) * random.random(steps.shape)])


def _layers(model: bytes) -> list[tuple[Array, Array]] | None:
    """Of a file with nothing but Gemm and Relu in turn."""
    graph = onnx.ModelProto.FromString(model).graph
    if [node.op_type for node in graph.node] != ["Gemm", "Relu", "Gemm"]:
        return None
    held = {one.name: numpy_helper.to_array(one).astype(np.float64) for one in graph.initializer}
    dense = [node for node in graph.node if node.op_type == "Gemm"]
    if any([(a.name, a.i) for a in node.attribute] != [("transB", 1)] or len(node.input) != 3 for node in dense):
        return None
    return [(held[node.input[1]], held[node.input[2]].reshape(-1)) for node in dense]


def _logits(model: bytes, points: Array) -> Array:
    found: Array = np.stack(runtime.values(runtime.session(model, "as written"), points))
    return found
