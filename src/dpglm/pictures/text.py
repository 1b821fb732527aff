"""Text in pictures: literal, on one line or wrapped, never wider than its place."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from dpglm._extras import require
from dpglm._html import visible

__all__ = ["one_line", "shortened", "told_apart", "width_of", "wrapped"]

_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
_BLANK = "(blank)"
# Letters fitted to pixels are wider than their outlines.
_HINTING = 1.04
# More characters than any place has room for.
_LONGEST = 400


def one_line(text: str) -> str:
    r"""Put text on one line: white space becomes a space, unprintable characters a mark.

    >>> one_line("100 %\nof it"), one_line(" "), one_line("\x07bell") == "\ufffdbell"
    ('100 % of it', '(blank)', True)
    """
    spaced = " ".join(text.split())
    return visible(spaced) or _BLANK


def width_of(text: str, size: float, *, bold: bool = False) -> float:
    """Return the width of one line of text in inches, at most; ``size`` is in points."""
    width, _, _ = _paths().get_text_width_height_descent(text, _font(size, bold), ismath=False)
    return _HINTING * float(width) / 72.0


def shortened(text: str, size: float, most: float, *, bold: bool = False) -> str:
    """Put text on one line of at most ``most`` inches, with an ellipsis in its middle.

    Names that begin alike stay different; ``size`` is in points.
    """
    text = one_line(text)
    if len(text) <= _LONGEST and width_of(text, size, bold=bold) <= most:
        return text
    fits, misses = 0, min(len(text), _LONGEST)
    while misses - fits > 1:
        middle = (fits + misses) // 2
        if width_of(_with_gap(text, middle), size, bold=bold) <= most:
            fits = middle
        else:
            misses = middle
    return _with_gap(text, fits)


def told_apart(texts: Sequence[str], size: float, most: float) -> list[str]:
    """Shorten different texts as ``shortened`` does, so that they stay different.

    Of those that would become the same only what they do not have in common is kept, or else their
    number.
    """
    short = [shortened(text, size, most) for text in texts]
    for again in (_without_common, _numbered):
        for kept in set(short):
            same = [i for i, one in enumerate(short) if one == kept]
            if len(same) > 1:
                own = again({i: texts[i] for i in same}, size, most)
                short = [own.get(i, one) for i, one in enumerate(short)]
    return short


def _without_common(texts: Mapping[int, str], size: float, most: float) -> dict[int, str]:
    alike = {i: one_line(text) for i, text in texts.items()}
    begin = _in_common(list(alike.values()))
    end = _in_common([one[begin:][::-1] for one in alike.values()])
    tail = _ELLIPSIS if end else ""
    return {
        i: shortened(f"{_ELLIPSIS}{one[begin : len(one) - end]}{tail}", size, most)
        for i, one in alike.items()
    }


def _numbered(texts: Mapping[int, str], size: float, most: float) -> dict[int, str]:
    numbers = {i: f" ({i + 1})" for i in texts}
    return {
        i: shortened(text, size, most - width_of(numbers[i], size)) + numbers[i]
        for i, text in texts.items()
    }


def wrapped(text: str, size: float, most: float, *, bold: bool = False) -> list[str]:
    """Break text at spaces into lines of at most ``most`` inches; keep its own breaks.

    ``size`` is in points. A word too long for a line is shortened.
    """
    lines: list[str] = []
    for paragraph in text.splitlines():
        line = ""
        for word in paragraph.split():
            longer = f"{line} {word}".lstrip()
            if line and width_of(one_line(longer), size, bold=bold) > most:
                lines.append(line)
                longer = word
            line = shortened(longer, size, most, bold=bold)
        lines += [line] if line else []
    return lines


def _in_common(texts: Sequence[str]) -> int:
    """Return with how many letters all of the texts begin."""
    letters = zip(*texts, strict=False)
    differ = (place for place, found in enumerate(letters) if len(set(found)) > 1)
    return next(differ, min(map(len, texts)))


def _with_gap(text: str, kept: int) -> str:
    end = kept * 2 // 5
    return f"{text[: kept - end].rstrip()}{_ELLIPSIS}{text[len(text) - end :].lstrip()}"


@functools.cache
def _paths() -> Any:
    return require("matplotlib.textpath", "plot").TextToPath()


@functools.lru_cache(maxsize=32)
def _font(size: float, bold: bool) -> Any:
    fonts = require("matplotlib.font_manager", "plot")
    return fonts.FontProperties(size=size, weight="bold" if bold else "normal")
