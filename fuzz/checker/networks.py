"""Networks that rounding fools, as ONNX files: what the checker derives for them holds however float32 computes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fuzz.checker import runtime, steps
from fuzz.checker.sketch import Sketch
from fuzz.checker.steps import Bend, Curve, Dense, Norm, Scale, Skip, Step, unrolled
from fuzz.checker.trial import Finding, Trial
from fuzz.hunting import hostile
from fuzz.hunting.draw import Draw
from proofmap.proof import check as checker
from tests.graph.onnx.files import Array
from tests.proof.making import BALL, members_of, npy, write

Random = np.random.Generator
_EXACT = 3000  # weights, above which values over the reals take too long


@dataclass(frozen=True, eq=False)
class Network:
    """Steps from x, flat, to the logits. `shape` is that of x."""

    kind: str
    steps: list[Step]
    x: Array
    shape: tuple[int, ...]
    ball: dict[str, Any]
    softmax: bool = False

    @property
    def classes(self) -> int:
        return len(self.usual(self.x))

    def usual(self, point: Array) -> Array:
        """Logits in float32, one way."""
        values = [point]
        for step in self.steps:
            values.append(step.usual(values[-1], values))
        return values[-1]


def _f(value: Any) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(np.float32)


def _layer(random: Random, read: int, out: int, scale: float = 1.0) -> Dense:
    form = str(random.choice(["Gemm", "MatMul"]))
    return Dense(_f(random.normal(size=(out, read)) * scale / read**0.5), _f(random.normal(size=out) * 0.3), form)


def _bend(random: Random) -> Bend:
    slope = float(random.choice([0.0, 0.0, 0.1, 0.01, 1e-30, 1 - 2.0**-24, 1.0, 0.3]))
    return Bend(slope, str(random.choice(["LeakyRelu", "PRelu"])) if slope else "Relu")


def _dense(random: Random, depth: int = 0) -> list[Step]:
    sizes = random.integers(2, 7, size=(depth or int(random.integers(1, 3))) + 2).tolist()
    found: list[Step] = []
    for n, m in pairwise(sizes):
        found += [_layer(random, n, m), _bend(random)]
    return found[:-1]


def _cut(random: Random) -> list[Step]:
    """Weights below what two slices keep, each just above half an ulp of the sum: float32 rounds every addition up.

    The first product is 2^-d. The second weight has an input of 0, and takes all the bits of the second slice.
    """
    bits, depth = int(random.choice([14, 17, 17, 20, 20, 23])), int(random.integers(1, 8))
    far = 2 * bits - 23 + int(random.integers(0, 3))
    weight = np.full((2, 2 ** (26 - bits)), 2.0 ** -(24 + depth))
    weight[1] *= random.choice([-1.0, 0.5, 1 + 2.0**-23])
    weight[:, 0], weight[:, 1] = 2.0 ** (far - depth), 2.0 ** (bits - 24 - depth)
    last = _f(random.normal(size=(3, 2)) * random.choice([1.0, 1e6, 1e3]))
    return [Dense(_f(weight), _f([0, 0])), _bend(random), Dense(last, _f(random.normal(size=3)))]


def _cut_input(first: Dense, random: Random) -> Array:
    """What makes the sum of `_cut` go wrong."""
    bits = 26 - first.weight.shape[1].bit_length() + 1
    return np.array(
        [2.0 ** -(2 * bits - 23 + int(random.integers(0, 3))), 0, *[1 + 2.0**-23] * (first.weight.shape[1] - 2)]
    )


def _mixed(random: Random) -> list[Step]:
    """Weights of all magnitudes."""
    found = _dense(random)
    for k, step in enumerate(found):
        if isinstance(step, Dense):
            scale = 2.0 ** random.integers(-40, 41, size=step.weight.shape).astype(float)
            found[k] = Dense(_f(step.weight * scale), step.bias, step.form)
    return found


def _near_overflow(random: Random) -> list[Step]:
    """Values near the largest float32, and back."""
    first, bend, *rest = _dense(random, 1)
    assert isinstance(first, Dense)
    assert isinstance(rest[-1], Dense)
    large = 2.0 ** int(random.integers(110, 127))
    last = Dense(_f(rest[-1].weight / large), rest[-1].bias)
    return [Dense(_f(first.weight * large), _f(first.bias * large)), bend, *rest[:-1], last]


def _denormal(random: Random) -> list[Step]:
    first, bend, *rest = _dense(random, 1)
    assert isinstance(first, Dense)
    assert isinstance(rest[-1], Dense)
    small = 2.0 ** -int(random.integers(120, 149))
    large = _f(np.clip(rest[-1].weight * 2.0 ** int(random.integers(60, 126)), -3e38, 3e38))
    return [Dense(_f(first.weight * small), _f(first.bias * small)), bend, *rest[:-1], Dense(large, rest[-1].bias)]


def _pruned(random: Random) -> list[Step]:
    """Most weights are 0, and what is left nearly cancels."""
    count = int(random.integers(4, 60))
    weight = random.normal(size=(6, count)) * (random.random((6, count)) < 0.15)
    weight[1] = -weight[0] * (1 + 2.0**-20)
    last = random.normal(size=(3, 6)) * random.choice([1.0, 1e4], size=6)
    return [Dense(_f(weight), _f(random.normal(size=6) * 0.01)), _bend(random), Dense(_f(last), _f(np.zeros(3)))]


def _normed(random: Random) -> list[Step]:
    """Batch norms whose mean nearly is the value, and whose variance is small: onnxruntime may fold them."""
    found: list[Step] = []
    for step in _dense(random):
        found.append(step)
        if isinstance(step, Dense) and random.random() < 0.8:
            n = len(step.bias)
            mean, variance = (
                random.normal(size=n) * random.choice([1, 100]),
                random.random(n) * random.choice([1, 1e-6]),
            )
            scale, bias = random.normal(size=n), random.normal(size=n)
            found.append(Norm(_f(scale), _f(bias), _f(mean), _f(variance), 1e-5))
    return found


def _convolved(random: Random) -> list[Step]:
    channels, side, outs, k = 1, int(random.integers(3, 5)), int(random.integers(1, 4)), int(random.integers(1, 4))
    pads, scale = int(random.integers(0, 2)) * (k > 1), float(random.choice([1, 1, 1e4]))
    kernel = _f(random.normal(size=(outs, channels, k, k)) * scale)
    if random.random() < 0.4:
        kernel[-1] = -kernel[0] * np.float32(1 + 2.0**-22)
    conv = unrolled(kernel, _f(random.normal(size=outs)), (channels, side, side), pads)
    found: list[Step] = [conv]
    if random.random() < 0.6:
        factor, shift, mean = random.normal(size=outs), random.normal(size=outs), random.normal(size=outs) * scale
        variance = random.random(outs) * random.choice([1, 1e-4])
        found.append(Norm(_f(factor), _f(shift), _f(mean), _f(variance), 1e-5))
    elif random.random() < 0.5:
        factor = _f(random.normal(size=outs)).repeat(len(conv.bias) // outs)
        found.append(Scale(str(random.choice(["Mul", "Add"])), factor))
    return [*found, _bend(random), _layer(random, len(conv.bias), int(random.integers(2, 4)))]


def _scaled(random: Random) -> list[Step]:
    """Chains of products whose factors leave the range together, and divisions by what has no exact reciprocal."""
    found = _dense(random)
    n = found[0].weight.shape[0] if isinstance(found[0], Dense) else 2
    chain: list[Step] = []
    for _ in range(int(random.integers(1, 5))):
        op = str(random.choice(["Mul", "Div", "Add", "Sub"]))
        number = random.choice([3.0, 1e-20, 1e20, 7.0, 1e-3, 0.1], size=n) if op in ("Mul", "Div") else None
        chain.append(Scale(op, _f(random.normal(size=n) if number is None else number)))
    return [found[0], *chain, *found[1:]]


def _skipped(random: Random) -> list[Step]:
    """x + f(x), which nearly cancels."""
    n = int(random.integers(2, 6))
    near = Dense(_f(-np.eye(n) * (1 + random.normal(size=n) * 1e-6)), _f(random.normal(size=n) * 1e-3))
    large = Dense(_f(random.normal(size=(3, n)) * random.choice([1.0, 1e5])), _f(np.zeros(3)))
    return [_layer(random, int(random.integers(1, 5)), n), near, Skip(1), _bend(random), large]


def _curved(random: Random) -> list[Step]:
    """Sigmoids and tanh in the place of relus, some of them saturated, and large weights behind them."""
    found: list[Step] = []
    for step in _dense(random):
        if isinstance(step, Bend):
            found.append(Curve(str(random.choice(["Sigmoid", "Tanh"]))) if random.random() < 0.9 else step)
        elif isinstance(step, Dense):
            size = np.float32(random.choice([1e-3, 1.0, 1.0, 30.0, 1e4]))
            found.append(Dense(step.weight * size, step.bias, step.form))
    return found


def _known(random: Random) -> list[Step]:
    """Those of the hunt for rigorous bounds."""
    one = hostile.hostile(int(random.integers(0, 10**6)))
    found: list[Step] = []
    for weight, bias in one.layers:
        found += [Dense(weight, bias), Bend(0.0)]
    return found[:-1]


KINDS: dict[str, Callable[[Random], list[Step]]] = {
    "dense": _dense,
    "cut": _cut,
    "mixed": _mixed,
    "near overflow": _near_overflow,
    "denormal": _denormal,
    "pruned": _pruned,
    "normed": _normed,
    "convolved": _convolved,
    "scaled": _scaled,
    "skipped": _skipped,
    "known": _known,
    "curved": _curved,
}


def drawn(seed: int) -> Network:
    """The network of a seed, its input and ball."""
    random, kind = np.random.default_rng([11, seed]), [*KINDS][seed % len(KINDS)]
    made = KINDS[kind](random)
    first = made[0]
    assert isinstance(first, Dense)
    shape = first.shape or (first.weight.shape[1],)
    count = int(np.prod(shape))
    x = random.choice([random.random(count), random.integers(0, 2, count), random.integers(0, 9, count) / 8])
    if kind == "cut" and random.random() < 0.8:
        x = _cut_input(first, random)
    elif random.random() < 0.2:
        x[random.random(count) < 0.5] = -0.0
    eps = str(random.choice(["0", "0.001", "0.01", "0.1", "1e-07"]))
    domain = [["0", "1"], None][int(random.random() < 0.3)]
    ball = {**BALL, "eps": eps, "domain": domain, "norm": str(random.choice(["inf", "inf", "2"]))}
    return Network(kind, made, _f(x), shape, ball, softmax=bool(random.random() < 0.1))


def points(one: Network, target: int, seed: int) -> list[Array]:
    """Inputs of the ball: x, where gradients of the other classes lead, and corners."""
    random, eps = np.random.default_rng([12, seed]), Fraction(one.ball["eps"])
    low, high = (0.0, 1.0) if one.ball["domain"] else (-np.inf, np.inf)
    forms = np.eye(one.classes) - np.eye(one.classes)[target]
    ways = [np.sign(steps.slope(one.steps, one.x, form)) for k, form in enumerate(forms) if k != target]
    ways += [random.choice([-1.0, 0.0, 1.0], size=len(one.x)) for _ in range(2)]
    found = [one.x]
    for way in ways:
        share = 1.0 if one.ball["norm"] == "inf" else 1 / max(1.0, float((way != 0).sum())) ** 0.5
        point = _f(np.clip(one.x + np.nan_to_num(way) * float(eps) * share, low, high))
        limit = eps * Fraction(share) if share < 1 else eps
        for i, v in enumerate(one.x):
            while abs(Fraction(float(point[i])) - Fraction(float(v))) > limit * (1 - Fraction(1, 2**40) * (share < 1)):
                point[i] = np.nextafter(point[i], v)
        found.append(point)
    return found


def judged(seed: int) -> Trial:
    """Everything that a network's certificate claims, beside what is computed."""
    with warnings.catch_warnings(), np.errstate(all="ignore"), TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        return _judged(drawn(seed), seed, Path(folder))


def _judged(one: Network, seed: int, folder: Path) -> Trial:
    data = steps.write(one.steps, one.shape, Sketch(Draw(seed), 13, one.shape), softmax=one.softmax)
    model, x = folder / "net.onnx", one.x.reshape(one.shape)
    model.write_bytes(data)
    logits = one.usual(one.x)
    if not np.isfinite(logits).all() or len(logits) < 2:
        return Trial({"networks": 1, "undecided": 1}, "float32 overflows at x")
    target = int(logits.argmax())
    mask = np.arange(one.x.size).reshape(one.shape) % 3
    try:
        members = members_of(model, x, mask, target, one.ball)
        proof = write(folder / "a.proof", members).read_bytes()
        checker.check(proof, data, npy(x))
    except checker.Rejected as error:
        return Trial({"networks": 1, "undecided": 1}, str(error))
    claims = {
        name: checker.read_array(members[f"{name}.npy"]) for name in ("upper", "lower", "reals-upper", "reals-lower")
    }
    files = {"net.onnx": data, "a.proof": proof, "x.npy": npy(x)}
    counts, fooled = {"networks": 1, "accepted": 1, "points": 0}, False
    sessions = {level: runtime.session(data, level) for level in runtime.LEVELS if not one.softmax}
    for point in points(one, target, seed):
        counts["points"] += 1
        same = [0, *(1 + u for u in range(int(mask.max()) + 1) if (point == one.x)[mask.ravel() == u].all())]
        for way, value in _computed(one, sessions, point, target):
            reals = "reals-" if way == "over the reals" else ""
            ahead = max(v for c, v in enumerate(value) if c != target) - value[target]
            wrong = [u for u in same if ahead > Fraction(float(claims[f"{reals}upper"][u]))]
            least = claims[f"{reals}lower"].max() if (point == one.x).all() else -np.inf
            if wrong or ahead < least:
                said = (
                    f"at most {claims[f'{reals}upper'][wrong[0]]!r} in member {wrong[0]}"
                    if wrong
                    else f"{least!r} at x"
                )
                what = f"{way}, the overlap is {float(ahead)!r}, the certificate says {said}"
                about = (f"{one.kind}, {one.ball}, target {target}", *map(repr, one.steps))
                files["point.npy"] = npy(point.reshape(one.shape))
                return Trial(counts, "", Finding(seed, "unsound", what, about, files))
            fooled |= reals == "" and ahead > Fraction(float(claims["reals-upper"][0]))
    return Trial({**counts, "fooled without rounding": int(fooled)}, one.kind)


def _computed(
    one: Network, sessions: dict[str, Any], point: Array, target: int
) -> Iterator[tuple[str, list[Fraction]]]:
    """Logits in all ways: those of onnxruntime, float32 in bad orders, and the exact ones."""
    for level, session in sessions.items():
        (value,) = runtime.values(session, point.reshape(1, *one.shape))
        yield f"onnxruntime, {level}", _fractions(value)
    every = np.eye(one.classes)
    forms = [every[rival] - every[target] for rival in range(one.classes) if rival != target]
    for form in [*forms, *([-forms[0]] if (point == one.x).all() else [])]:
        value = steps.computed(one.steps, point, form)
        if np.isfinite(value).all():
            yield "float32", _fractions(value)
    size = sum(step.weight.size for step in one.steps if isinstance(step, Dense))
    if size < _EXACT:
        yield "over the reals", steps.exactly(one.steps, point)


def _fractions(value: Array) -> list[Fraction]:
    return [Fraction(float(v)) for v in value]
