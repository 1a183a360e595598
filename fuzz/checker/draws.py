"""The ONNX file of a seed, the shape of its input, and what was changed in it."""

from __future__ import annotations

from dataclasses import dataclass

from fuzz.checker import wire
from fuzz.checker.makers import FLAT, SELDOM, USUAL
from fuzz.checker.oddities import ODDITIES
from fuzz.checker.sketch import Shape, Sketch
from fuzz.hunting.draw import DEAD, Draw, Undrawn

OPSETS = (7, 8, 9, 10, 11, 12, 13, 13, 14, 15, 16, 17, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26)


@dataclass(frozen=True)
class File:
    """A model as bytes. `shape` is that of one input, without the batch axis; `changes` name the oddities."""

    seed: int
    data: bytes
    shape: Shape
    changes: tuple[str, ...]
    described: tuple[str, ...]


def drawn(seed: int) -> File:
    """The same file at every call: one in three has nothing odd, the others have one to three changes."""
    draw = Draw("onnx", seed)
    sketch = _sketch(draw)
    model = sketch.model()
    described = tuple(_word(node) for node in sketch.nodes)
    changes: list[str] = []
    odd = 0 if seed % 3 == 0 else draw.pick([1, 1, 1, 2, 2, 3])
    while len(changes) < odd and draw.chance(0.55):
        name = draw.pick(sorted(ODDITIES))
        try:
            ODDITIES[name](draw, model)
        except Exception:  # it does not fit this model, or onnx itself refuses to make it
            continue
        changes.append(name)
    data = model.SerializeToString(deterministic=True)
    while len(changes) < odd:
        try:
            data, name = wire.changed(draw, data)
        except (Undrawn, IndexError, ValueError):  # nothing there to change, or already damaged
            if draw.chance(0.2):
                break
            continue
        changes.append(name)
    return File(seed, data, _asked(draw, sketch.shape), tuple(changes), described)


def _sketch(draw: Draw) -> Sketch:
    rank = draw.pick([1, 1, 2, 3, 3, 3, 3, 4])
    shape = tuple(draw.wholes(1, 1, 8) if rank == 1 else draw.wholes(rank, 1, 3 if rank == 4 else 6 - (rank == 3)))
    sketch = Sketch(draw, draw.pick(OPSETS), shape)
    for _ in range(draw.whole(1, 5)):
        _step(sketch)
    while draw.chance(0.4):
        _step(sketch, FLAT)
    if draw.chance(0.5):  # only a list of classes can be bounded over a ball
        _try(sketch, "Flatten")
    if draw.chance(0.08):
        _try(sketch, "Softmax")
    if not sketch.nodes:
        sketch.add("Relu", ["x"], sketch.now)
    return sketch


def _step(sketch: Sketch, ops: tuple[str, ...] = ()) -> None:
    for _ in range(DEAD):
        table = SELDOM if sketch.draw.chance(0.06) else USUAL
        if _try(sketch, sketch.draw.pick(ops or sorted(table))):
            return


def _try(sketch: Sketch, op: str) -> bool:
    try:
        ({**USUAL, **SELDOM})[op](sketch, op)
    except (Undrawn, IndexError, ValueError, ZeroDivisionError):  # all but the first for values without axes
        return False
    return True


def _asked(draw: Draw, shape: Shape) -> Shape:
    """Seldom another shape than that of the file."""
    if draw.chance(0.95):
        return shape
    other = list(shape)
    kind = draw.whole(0, 4)
    if kind == 0:
        return (1, *shape)
    if kind == 1:
        return (*shape[:-2], shape[-1] * (shape[-2] if len(shape) > 1 else 1))
    if kind == 2:
        return tuple(draw.random.sample(other, len(other)))
    other[draw.whole(0, len(other) - 1)] += draw.pick([-1, 1]) if kind == 3 else 0
    return tuple(max(1, side) for side in other) if kind == 3 else (*shape, 1)


def _word(node: object) -> str:
    return " ".join(str(node).split())
