"""Dataclasses as JSON and back: single values, and kinds made of them."""

from dpglm._codec.kinds import APART_FIELD, Format, Text, decode, encode, named, type_name
from dpglm._codec.values import (
    SCALAR,
    Form,
    Matrix,
    Vector,
    arrays_apart,
    each,
    items,
    line,
    mapping,
    number,
)

__all__ = [
    "APART_FIELD",
    "SCALAR",
    "Form",
    "Format",
    "Matrix",
    "Text",
    "Vector",
    "arrays_apart",
    "decode",
    "each",
    "encode",
    "items",
    "line",
    "mapping",
    "named",
    "number",
    "type_name",
]
