"""Values come back from JSON bit for bit, and nothing else comes back at all."""

from __future__ import annotations

import abc
import dataclasses
import enum
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpglm._codec import Form, Format, Text, decode, encode, type_name
from dpglm.privacy.events import Composed, Event, Gaussian, Repeated


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self) -> float: ...


@final
@dataclass(frozen=True)
class Square(Shape):
    side: float

    def __post_init__(self) -> None:
        if not self.side > 0.0:
            raise ValueError(f"side must be above 0, got {self.side!r}")

    def area(self) -> float:
        return self.side**2


@final
@dataclass(frozen=True)
class Several(Shape):
    shapes: tuple[Shape, ...]

    def area(self) -> float:
        return sum(one.area() for one in self.shapes)


@final
@dataclass(frozen=True)
class Everything:
    flag: bool
    count: int
    size: float
    name: str
    colour: Colour
    shape: Shape
    pair: tuple[int, str]
    groups: tuple[tuple[int, ...], ...]
    sizes: Sequence[float]
    named: Mapping[str, float]
    maybe: float | None
    either: int | float | tuple[str, ...]
    one: Square | Several
    letter: Literal["a", "b"]
    plain: Any
    derived: int = field(init=False, default=3, compare=False)


EVERYTHING = Everything(
    True,
    7,
    -math.inf,
    "name",
    Colour.BLUE,
    Several((Square(0.1), Several(()))),
    (1, "x"),
    ((1, 2), ()),
    (0.1, math.inf),
    {"a": 1e-300},
    None,
    2,
    Square(2.0),
    "b",
    {"list": [1, "two", None, {"three": 3.5}]},
)


def through_json(value: Any, kind: Any = None) -> Any:
    written = json.loads(json.dumps(encode(value, kind), allow_nan=False))
    return decode(type(value) if kind is None else kind, written)


def test_everything_comes_back():
    assert through_json(EVERYTHING) == EVERYTHING
    assert type(through_json(EVERYTHING).either) is int


@given(st.floats(allow_nan=False))
def test_floats_come_back_bit_for_bit(value):
    assert struct.pack("d", through_json(value)) == struct.pack("d", value)


@pytest.mark.parametrize(
    "array",
    [
        np.array([[0.1, math.inf], [-0.0, 5e-324]]),
        np.array([1.1, 2.2], dtype=np.float32),
        np.arange(6, dtype=np.int8).reshape(1, 2, 3),
        np.array([True, False]),
        np.array([2**64 - 1], dtype=np.uint64),
        np.zeros((0, 3)),
        np.array(1.5),
    ],
)
def test_arrays_come_back(array):
    found = through_json(array, NDArray[Any])
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()


def test_numbers_of_numpy_are_written_as_plain_ones():
    assert encode(Square(np.float64(2.0))) == {"side": 2.0}
    assert encode(np.int64(3), int) == 3
    assert encode(1, float) == 1.0


def test_classes_have_the_names_that_ledgers_use():
    event = Composed((Repeated(Gaussian(2.0), 3), Gaussian(1.0)))
    assert encode(event, Event) == event.to_dict()
    assert type_name(Gaussian) == "gaussian"
    assert type_name(Square) == f"{__name__}.Square"


def written(**changes: Any) -> Any:
    return {**json.loads(json.dumps(encode(EVERYTHING))), **changes}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"flag": 1}, "flag must be true or false, got 1"),
        ({"count": True}, "count must be an integer, got True"),
        ({"count": 1.0}, r"count must be an integer, got 1\.0"),
        ({"size": "1"}, "size must be a finite number"),
        ({"size": "nan"}, "size must be a finite number"),
        ({"size": math.nan}, "size must be a finite number"),
        ({"size": True}, "size must be a finite number"),
        ({"name": "two\nlines"}, "name must be one line of text"),
        ({"name": "\ud800"}, "name must be Unicode text"),
        ({"colour": "green"}, r"colour must be one of \['red', 'blue'\], got 'green'"),
        ({"colour": "RED"}, "colour must be one of"),
        ({"shape": {"side": 1.0}}, r"shape: type must be one of .* got None"),
        ({"shape": {"type": "square", "side": 1.0}}, r"shape: type must be one of \['tests"),
        ({"shape": {"type": f"{__name__}.Square", "side": -1.0}}, r"shape: side must be above 0"),
        ({"shape": {"type": f"{__name__}.Square", "side": "x"}}, r"shape\.side must be a finite"),
        ({"shape": {"type": f"{__name__}.Square"}}, r"shape: a tests.* missing: \['side'\]"),
        ({"shape": {"type": "os.path", "side": 1.0}}, "import os first"),
        ({"pair": [1]}, "pair must be an array of 2 values"),
        ({"pair": [1, 2]}, r"pair\[1\] must be text"),
        ({"groups": [[1], [2.5]]}, r"groups\[1\]\[0\] must be an integer"),
        ({"named": {"a": "b"}}, r"named\.a must be a finite number"),
        ({"either": "x"}, "either must be an integer, got 'x'; or must be an array"),
        ({"letter": "c"}, r"letter must be one of \['a', 'b'\]"),
        ({"maybe": "much"}, "maybe must be a finite number"),
        ({"more": 1}, r"unknown: \['more'\]"),
        ({"derived": 4}, r"unknown: \['derived'\]"),
    ],
)
def test_invalid_value_is_refused_at_its_place(changes, says):
    with pytest.raises(ValueError, match=says):
        decode(Everything, written(**changes))


def test_every_key_is_needed():
    for name in written():
        with pytest.raises(ValueError, match=rf"missing: \['{name}'\]"):
            decode(Everything, {key: one for key, one in written().items() if key != name})


@pytest.mark.parametrize(
    "document",
    [
        {"dtype": "<f8", "shape": [2], "values": [1.0]},
        {"dtype": "<f8", "shape": [-1, -1], "values": [1.0]},
        {"dtype": "O", "shape": [1], "values": [1.0]},
        {"dtype": "<f8,<f8", "shape": [1], "values": [1.0]},
        {"dtype": "<f8", "shape": [1], "values": ["x"]},
        {"dtype": "|i1", "shape": [1], "values": [300]},
        {"dtype": "<b8", "shape": [1], "values": [1]},
        {"dtype": "<i8", "shape": [1], "values": [1.5]},
        {"dtype": "<f4", "shape": [1], "values": [1e300]},
        [1.0],
    ],
)
def test_arrays_that_are_none_are_refused(document):
    with pytest.raises(ValueError, match="must"):
        decode(np.ndarray, document)


class Plain(Shape):
    def area(self) -> float:
        return 0.0


@dataclass(frozen=True)
class Holder:
    shape: Shape
    made_by: Any = None


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (math.nan, "must be"),
        (Holder(Plain()), "shape must be a Shape that is a dataclass"),
        (Holder(Square(1.0), made_by=len), "made_by must be a JSON value"),
        (Holder(Square(1.0), made_by=math.inf), "made_by must be a finite number"),
        (Holder(3.0), "shape must be a Shape"),
        (Square(2**53 + 1), "side must be a number that a float holds exactly"),
        (Square(np.array([1.0])), "side must be a number"),
    ],
)
def test_unwritable_value_is_refused_at_its_place(value, says):
    with pytest.raises(ValueError, match=says):
        encode(value, float if isinstance(value, float) else None)


def define() -> type[Shape]:
    @dataclass(frozen=True)
    class Round(Shape):
        radius: float

        def area(self) -> float:
            return math.pi * self.radius**2

    return Round


def test_last_definition_of_a_class_counts():
    first, last = define(), define()
    assert type_name(first) == type_name(last)
    assert type(through_json(first(1.0), Shape)) is last


@dataclass(frozen=True)
class Named:
    name_: Text
    size: Annotated[float, Form(str, float)]


def test_declaration_may_set_its_spelling():
    value = Named("two\nlines", 0.5)
    assert encode(value) == {"name": "two\nlines", "size": "0.5"}
    assert through_json(value) == value
    with pytest.raises(ValueError, match="size: could not convert"):
        decode(Named, {"name": "", "size": "x"})


def test_formats_name_other_formats_and_versions():
    shapes = Format("shape", 3, Square, {2: "0.0"})
    assert shapes.read(shapes.write(Square(2.0))) == Square(2.0)
    for changes, says in (
        ({"format": "x"}, "is not a shape: it must have the format 'shape', got 'x'"),
        ({"version": 2}, r"was written by dpglm 0\.0 \(version 2 of a shape, this is 3\)"),
        ({"version": 4}, "must have version 3, got 4"),
        ({"version": None}, "must have version 3, got None"),
        ({"more": 1}, r"unknown: \['more'\]"),
    ):
        with pytest.raises(ValueError, match=says):
            shapes.read({**shapes.write(Square(2.0)), **changes})
    with pytest.raises(ValueError, match="is not a shape"):
        shapes.read([])


def test_undefined_class_is_reported():
    document = {"type": "elsewhere.Shape", "side": 1.0}
    with pytest.raises(ValueError, match="import elsewhere first"):
        decode(Shape, document)


@pytest.mark.parametrize("declared", ["Missing", "complex[3]"])
def test_fields_without_types_are_a_value_error(declared):
    kind = dataclasses.make_dataclass("Untyped", [("side", declared)], frozen=True)
    with pytest.raises(ValueError, match=r"the fields of .*Untyped lack types"):
        encode(kind(1.0))
    with pytest.raises(ValueError, match="lack types"):
        decode(kind, {"side": 1.0})


def test_numbers_and_keys_that_json_has_not_are_a_value_error():
    with pytest.raises(ValueError, match="side must be a finite number"):
        decode(Square, {"side": 10**400})
    with pytest.raises(ValueError, match="side must be a number that a float holds"):
        encode(Square(10**400))
    with pytest.raises(ValueError, match=r"unknown: \[1, 'corner'\]"):
        decode(Square, {1: 2, "corner": 3})


def test_constructors_that_stumble_are_a_value_error():
    @dataclass(frozen=True)
    class Ratio(Shape):
        low: float
        high: float

        def __post_init__(self) -> None:
            self.low / self.high

        def area(self) -> float:
            return 0.0

    with pytest.raises(ValueError, match=r"makes no .*Ratio: float division"):
        decode(Ratio, {"low": 1.0, "high": 0.0})
