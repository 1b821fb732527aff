"""Figures, colours, quiet axes, and text that fits its place."""

from __future__ import annotations

import base64
import functools
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any, final

from dpglm._registry import require
from dpglm._validation import check_real
from dpglm._words import plain_number, visible

_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
_BLANK = "(blank)"
# Hinted letters are wider than their outlines.
_HINTING = 1.04
# Longer texts do not fit anywhere.
_LONGEST = 400


def one_line(text: str) -> str:
    r"""Return text on one line, with spaces for white space and marks for unprintable characters.

    >>> one_line("100 %\nof it"), one_line(" "), one_line("\x07bell") == "\ufffdbell"
    ('100 % of it', '(blank)', True)
    """
    spaced = " ".join(text.split())
    return visible(spaced) or _BLANK


def width_of(text: str, size: float, *, bold: bool = False) -> float:
    """Return an upper bound on the width of text in inches; ``size`` is in points."""
    width, _, _ = _paths().get_text_width_height_descent(text, _font(size, bold), ismath=False)
    return _HINTING * float(width) / 72.0


def shortened(text: str, size: float, most: float, *, bold: bool = False) -> str:
    """Return text on one line of at most ``most`` inches, with an ellipsis in its middle.

    Names with equal beginnings stay different; ``size`` is in points.
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
    """Shorten texts as ``shortened`` does, but keep different ones different.

    Texts that would become equal lose their common beginning and end, or else are numbered.
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
    """Wrap text into lines of at most ``most`` inches, keeping line breaks.

    ``size`` is in points. Words that are too long for a line are shortened.
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
    """Return the length of the common beginning of the texts."""
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


# Okabe and Ito's palette for all kinds of colour vision.
BLUE, ORANGE, GREEN, PURPLE, YELLOW = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, YELLOW)
INK, GREY, LIGHT = "#1F2933", "#6B7785", "#E4E8EC"
_TITLE, _SUBTITLE = 14.0, 10.0
_MARGIN = 0.16
_LEADING = 1.35
_MOST_TICKS = 9


def new_figure(width: float, body: float, title: str, subtitle: str) -> Any:
    """Return a figure with a wrapped title and subtitle, not registered with pyplot.

    ``width``, and ``body``, the height of the axes, are in inches.
    """
    require("matplotlib", "plot")

    room = check_real("width", width, least=1.0, most=100.0) - 2.0 * _MARGIN
    heading = wrapped(title, _TITLE, room, bold=True)
    below = wrapped(subtitle, _SUBTITLE, room)
    # Height of the lines in inches.
    tall = _LEADING * _TITLE / 72.0 * len(heading)
    head = _MARGIN + tall + _LEADING * _SUBTITLE / 72.0 * len(below) + 0.08
    height = body + head
    layout = require("matplotlib.layout_engine", "plot").ConstrainedLayoutEngine(
        rect=(0.0, 0.0, 1.0, body / height), w_pad=_MARGIN, h_pad=0.08
    )
    figure = _picture_class()(figsize=(width, height), dpi=150, facecolor="white", layout=layout)
    left, top = _MARGIN / width, 1.0 - _MARGIN / height
    shared: dict[str, Any] = {"va": "top", "ha": "left", "parse_math": False}
    shared |= {"linespacing": 1.3, "in_layout": False}
    figure.text(left, top, "\n".join(heading), size=_TITLE, weight="bold", color=INK, **shared)
    top -= tall / height
    figure.text(left, top, "\n".join(below), size=_SUBTITLE, color=GREY, **shared)
    return figure


def quiet(axes: Any, *, grid: str = "y") -> None:
    """Remove spines and ticks, and add a light grid."""
    for side in ("top", "right", "left" if grid == "y" else "bottom"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GREY)
        axes.spines[side].set_linewidth(0.8)
    axes.grid(visible=True, axis=grid, color=LIGHT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=GREY, labelsize=9.5, length=0, labelcolor=INK, which="both")
    axes.xaxis.label.set(color=INK, size=10.5)
    axes.yaxis.label.set(color=INK, size=10.5)


def log_scale(axes: Any) -> None:
    """Set a logarithmic y axis with ticks at 1, 2 and 5."""
    ticker = require("matplotlib.ticker", "plot")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda value, _: plain_number(value))
    axes.yaxis.set_minor_locator(ticker.NullLocator())


def ratios_of_logarithms(axes: Any) -> None:
    """Label an x axis of natural logarithms with their exponentials, at round numbers."""
    low, high = axes.get_xlim()
    ends = (low / math.log(10.0), high / math.log(10.0))
    powers = range(math.floor(ends[0]), math.ceil(ends[1]) + 1)

    def ticks(*digits: float) -> list[float]:
        found = [math.log(one) + power * math.log(10.0) for power in powers for one in digits]
        return [one for one in found if low <= one <= high]

    choices = [ticks(1.0, 1.5, 2.0, 3.0, 5.0, 7.0), ticks(1.0, 2.0, 5.0), ticks(1.0)]
    shown = next((one for one in choices if len(one) <= _MOST_TICKS), choices[-1])
    shown = shown[:: math.ceil(len(shown) / _MOST_TICKS) or 1]
    axes.set_xticks(shown, [plain_number(math.exp(one), 2) for one in shown])


def as_data_uri(figure: Any) -> str:
    """Return a figure as a reproducible SVG data URI, with text as outlines."""
    matplotlib = require("matplotlib", "plot")
    stream = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "dpglm", "svg.fonttype": "path"}):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


_DOTS_PER_INCH = 72.0


def __getattr__(name: str) -> Any:
    # Matplotlib is optional, and pickled figures refer to this name.
    if name == "Picture":
        return _picture_class()
    raise AttributeError(f"module {__name__!r} does not have attribute {name!r}")


@functools.cache
def _picture_class() -> Any:
    from matplotlib.figure import Figure

    @final
    class Picture(Figure):
        """A Matplotlib figure that is not registered with pyplot and shows itself in notebooks.

        IPython shows a plain ``Figure`` only after pyplot was set up. If it was, IPython ignores
        this method, so that an output has one image.
        """

        __qualname__ = "Picture"

        def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
            stream = io.BytesIO()
            self.savefig(stream, format="png")
            width, height = self.get_size_inches()
            # The size on paper, for every resolution.
            points = [round(inches * _DOTS_PER_INCH) for inches in (width, height)]
            return stream.getvalue(), {"width": points[0], "height": points[1]}

    return Picture
