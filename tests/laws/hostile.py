"""Damaged and hostile files, made from whole ones."""

import json
import math

from hypothesis import strategies as st

NESTED = "[" * 100 + "]" * 100
# As JSON text, so that values without a counterpart in Python can be among them.
HOSTILE = (
    "null",
    "true",
    "[]",
    "{}",
    '""',
    '"text"',
    '"\\u001b[2J\\u001b]0;title\\u0007"',
    '"\\ud800"',
    '"two\\nlines"',
    "0",
    "-1",
    "0.5",
    "3",
    "1e308",
    "1e-308",
    "1e400",
    "-1e400",
    "NaN",
    "Infinity",
    "9" * 5000,
    "9223372036854775808",
    "[[[1, null]]]",
    '{"type": "gaussian", "noise_multiplier": 1.0}',
    '{"a": 1, "a": 2}',
    NESTED,
)


def nodes(tree, place=()):
    """List the places of all values in a JSON tree."""
    yield place
    children = {dict: dict.items, list: enumerate}.get(type(tree), lambda _: ())
    for key, value in children(tree):
        yield from nodes(value, (*place, key))


def written(tree, replaced, text, place=()):
    """Write JSON with the value at one place replaced by a text, or left out where that is None."""
    if place == replaced:
        return text
    if isinstance(tree, dict):
        parts = ((json.dumps(k), written(v, replaced, text, (*place, k))) for k, v in tree.items())
        return "{" + ", ".join(f"{key}: {value}" for key, value in parts if value is not None) + "}"
    if isinstance(tree, list):
        parts = (written(v, replaced, text, (*place, i)) for i, v in enumerate(tree))
        return "[" + ", ".join(value for value in parts if value is not None) + "]"
    return json.dumps(tree)


@st.composite
def mutated(draw, tree):
    """Draw the text of a JSON tree with one value replaced, removed, or given twice."""
    place = draw(st.sampled_from(list(nodes(tree))))
    text = draw(st.sampled_from((*HOSTILE, None)))
    whole = written(tree, place, text if text is not None or place else "")
    if draw(st.booleans()) and whole.startswith('{"'):
        key = draw(st.sampled_from(sorted(tree)))
        return whole[:-1] + f", {json.dumps(key)}: null" + "}"
    return whole


@st.composite
def damaged(draw, content):
    """Draw bytes with a few flipped, cut off at the end, or something put before or after."""
    kind = draw(st.sampled_from(("flip", "cut", "prefix", "suffix", "encoding")))
    if kind == "flip":
        changed = bytearray(content)
        for _ in range(draw(st.integers(1, 3))):
            position = draw(st.integers(0, len(content) - 1))
            changed[position] ^= draw(st.integers(1, 255))
        return bytes(changed)
    if kind == "cut":
        return content[: draw(st.integers(0, math.ceil(len(content) * 0.999)))]
    if kind == "prefix":
        return draw(st.sampled_from((b"\xef\xbb\xbf", b"\xff\xfe", b"\x00", b"[", b" "))) + content
    if kind == "suffix":
        return content + draw(st.sampled_from((b"}", b"\x00", b"\n\n", b"\xff", b"[1]")))
    return content.decode("latin-1").encode("utf-16")
