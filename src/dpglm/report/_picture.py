"""The figure that pictures are drawn on: a notebook shows it by itself, without pyplot."""

from __future__ import annotations

import io
from typing import Any, final

from matplotlib.figure import Figure

__all__ = ["Picture"]

_DOTS_PER_INCH = 72.0


@final
class Picture(Figure):
    """A Matplotlib figure that is not registered with pyplot and shows itself in notebooks.

    Notes
    -----
    IPython knows how to show a plain ``Figure`` only after pyplot was set up for it, which other
    code may or may not have done. Where it was, that way is taken, and this one is not: an output
    has one image in any case.
    """

    def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
        stream = io.BytesIO()
        self.savefig(stream, format="png")
        width, height = self.get_size_inches()
        # As large as on paper, whatever the resolution.
        size = {"width": round(width * _DOTS_PER_INCH), "height": round(height * _DOTS_PER_INCH)}
        return stream.getvalue(), size
