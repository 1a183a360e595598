"""Protobuf messages as they are written: fields taken out, doubled, moved, retyped; numbers in other lengths; bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import onnx

from fuzz.hunting.draw import Draw, Undrawn


@dataclass
class Field:
    """One field as it is written; `value` is a number, bytes, or the fields of a message."""

    number: int
    kind: int  # the wire type: 0 varint, 1 eight bytes, 2 length and content, 5 four bytes
    value: Any
    extra: int = 0  # bytes that a number is longer than it has to be

    def written(self) -> bytes:
        key = varint(self.number << 3 | self.kind)
        if self.kind == 0:
            return key + varint(self.value % 2**64, self.extra)
        if self.kind != 2:
            return key + bytes(self.value)
        content = self.value if isinstance(self.value, bytes) else written(self.value)
        return key + varint(len(content), self.extra) + content


def varint(value: int, extra: int = 0) -> bytes:
    """A number in sevens of bits; `extra` bytes longer than needed."""
    parts = [value & 127]
    while value := value >> 7:
        parts.append(value & 127)
    parts += [0] * extra
    return bytes([*(part | 128 for part in parts[:-1]), parts[-1]])


def written(fields: list[Field]) -> bytes:
    return b"".join(field.written() for field in fields)


def read(data: bytes, kind: Any) -> list[Field]:
    """The fields of a well-formed message, and of the messages in it. `kind` is its protobuf descriptor."""
    fields, at = list[Field](), 0
    value: Any
    while at < len(data):
        key, at = _number(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _number(data, at)
        elif wire == 2:
            size, at = _number(data, at)
            value, at = data[at : at + size], at + size
            known = kind.fields_by_number.get(number)
            if known is not None and known.message_type is not None:
                value = read(value, known.message_type)
        else:
            size = 8 if wire == 1 else 4
            value, at = data[at : at + size], at + size
        fields.append(Field(number, wire, value))
    return fields


def _number(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def _messages(fields: list[Field]) -> list[list[Field]]:
    """All lists of fields, the outermost first."""
    found = [fields]
    for field in fields:
        if isinstance(field.value, list):
            found += _messages(field.value)
    return found


def _some(draw: Draw, fields: list[Field]) -> tuple[list[Field], int]:
    message = draw.pick([message for message in _messages(fields) if message])
    return message, draw.whole(0, len(message) - 1)


def _leaf(draw: Draw, fields: list[Field], *kinds: int) -> Field:
    found = [f for m in _messages(fields) for f in m if f.kind in kinds and not isinstance(f.value, list)]
    return draw.pick(found)


def taken_out(draw: Draw, fields: list[Field]) -> None:
    message, at = _some(draw, fields)
    del message[at]


def doubled(draw: Draw, fields: list[Field]) -> None:
    message, at = _some(draw, fields)
    message.insert(draw.whole(0, len(message)), message[at])


def moved(draw: Draw, fields: list[Field]) -> None:
    message, at = _some(draw, fields)
    message.insert(draw.whole(0, len(message) - 1), message.pop(at))


def elsewhere(draw: Draw, fields: list[Field]) -> None:
    """A field of one message in another."""
    message, at = _some(draw, fields)
    other, place = _some(draw, fields)
    if isinstance(message[at].value, list) and other in _messages(message[at].value):
        raise Undrawn("a message in itself")
    other.insert(place, message[at])


def swapped(draw: Draw, fields: list[Field]) -> None:
    """Two strings, or two numbers, change places."""
    kind = draw.pick([0, 2, 2])
    one, two = _leaf(draw, fields, kind), _leaf(draw, fields, kind)
    one.value, two.value = two.value, one.value


def retyped(draw: Draw, fields: list[Field]) -> None:
    field = _leaf(draw, fields, 0, 2, 5)
    kind = draw.pick([0, 1, 2, 5, 3, 4, 6])
    number = field.value if isinstance(field.value, int) else 1
    field.value = {0: number, 2: varint(number)}.get(kind, number.to_bytes(8, "little")[: 8 if kind == 1 else 4])
    if kind in (3, 4, 6):
        field.value = b""
    field.kind = kind


def renumbered(draw: Draw, fields: list[Field]) -> None:
    message, at = _some(draw, fields)
    message[at].number = draw.pick([0, *range(1, 27), 100, 2**29 - 1, 2**29])


def another_number(draw: Draw, fields: list[Field]) -> None:
    field = _leaf(draw, fields, 0)
    field.value = draw.pick(
        [field.value + 1, field.value - 1, 0, 1, 2, -1, 2**31, 2**32 + field.value, 2**63, 2**64 - 1]
    )


def longer(draw: Draw, fields: list[Field]) -> None:
    """A number or a length in more bytes than it needs."""
    message, at = _some(draw, fields)
    message[at].extra = draw.pick([1, 2, 3, 6, 8, 9, 10])


def unknown(draw: Draw, fields: list[Field]) -> None:
    message, at = _some(draw, fields)
    kind = draw.pick([0, 1, 2, 5])
    value = {0: 1, 1: b"\0" * 8, 2: b"odd", 5: b"\0" * 4}[kind]
    message.insert(at, Field(draw.pick([15, 17, 19, 23, 26, 50, 1000, 2**28]), kind, value))


def packed(draw: Draw, fields: list[Field]) -> None:
    """Numbers that are repeated, in one field."""
    message = draw.pick([m for m in _messages(fields) if any(f.kind == 0 for f in m)])
    number = draw.pick([f.number for f in message if f.kind == 0])
    values = [f.value for f in message if f.number == number and f.kind == 0]
    at = next(k for k, f in enumerate(message) if f.number == number and f.kind == 0)
    message[:] = [f for f in message if f.number != number or f.kind != 0]
    message.insert(at, Field(number, 2, b"".join(varint(value % 2**64) for value in values)))


def split(draw: Draw, fields: list[Field]) -> None:
    """A message in two parts, which protobuf joins where it should be there once."""
    message = draw.pick([m for m in _messages(fields) if any(isinstance(f.value, list) for f in m)])
    at = draw.pick([k for k, f in enumerate(message) if isinstance(f.value, list)])
    whole, cut = message[at], draw.whole(0, len(message[at].value))
    message[at : at + 1] = [Field(whole.number, 2, whole.value[:cut]), Field(whole.number, 2, whole.value[cut:])]


def bytes_flipped(draw: Draw, fields: list[Field]) -> None:
    field = _leaf(draw, fields, 2, 5, 1)
    content = bytearray(field.value)
    if not content:
        raise Undrawn("nothing to flip")
    content[draw.whole(0, len(content) - 1)] ^= 1 << draw.whole(0, 7)
    field.value = bytes(content)


def cut(draw: Draw, fields: list[Field]) -> None:
    field = _leaf(draw, fields, 2)
    field.value = draw.pick([field.value[:-1], field.value + b"\0", field.value * 2, b""])


CHANGES: dict[str, Callable[[Draw, list[Field]], None]] = {
    change.__name__: change
    for change in (
        *(taken_out, doubled, moved, elsewhere, swapped, retyped, renumbered, another_number, longer, unknown),
        *(packed, split, bytes_flipped, cut),
    )
}


def changed(draw: Draw, data: bytes) -> tuple[bytes, str]:
    """The bytes of a model with one change, and its name: to the fields, seldom to the bytes as such."""
    if draw.chance(0.15):
        return _damaged(draw, data)
    fields = read(data, onnx.ModelProto.DESCRIPTOR)
    name = draw.pick(sorted(CHANGES))
    CHANGES[name](draw, fields)
    return written(fields), name


def _damaged(draw: Draw, data: bytes) -> tuple[bytes, str]:
    content, at = bytearray(data), draw.whole(0, len(data) - 1)
    kind = draw.pick(["a bit", "a byte", "cut off", "one byte more", "one byte less"])
    if kind == "a bit":
        content[at] ^= 1 << draw.whole(0, 7)
    elif kind == "a byte":
        content[at] = draw.whole(0, 255)
    elif kind == "cut off":
        del content[at:]
    elif kind == "one byte more":
        content.insert(at, draw.whole(0, 255))
    else:
        del content[at]
    return bytes(content), kind
