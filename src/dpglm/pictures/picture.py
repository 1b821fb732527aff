"""A Matplotlib figure that notebooks show without pyplot."""

from __future__ import annotations

import functools
import io
from typing import Any, final

__all__ = ["Picture"]  # noqa: F822

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
