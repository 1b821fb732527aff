"""The figure that pictures are drawn on: a notebook shows it by itself, without pyplot."""

from __future__ import annotations

import functools
import io
from typing import Any, final

__all__ = ["Picture"]  # noqa: F822

_DOTS_PER_INCH = 72.0


def __getattr__(name: str) -> Any:
    # Matplotlib need not be installed, and kept figures are found by this name.
    if name == "Picture":
        return _picture_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@functools.cache
def _picture_class() -> Any:
    from matplotlib.figure import Figure

    @final
    class Picture(Figure):
        """A Matplotlib figure that is not registered with pyplot and shows itself in notebooks.

        IPython knows how to show a plain ``Figure`` only after pyplot was set up for it, which
        other code may or may not have done. Where it was, that way is taken, and this one is not:
        an output has one image in any case.
        """

        __qualname__ = "Picture"

        def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
            stream = io.BytesIO()
            self.savefig(stream, format="png")
            width, height = self.get_size_inches()
            # As large as on paper, whatever the resolution.
            points = [round(inches * _DOTS_PER_INCH) for inches in (width, height)]
            return stream.getvalue(), {"width": points[0], "height": points[1]}

    return Picture
