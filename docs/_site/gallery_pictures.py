"""Pictures of dpglm in the gallery: figures that pyplot does not know of."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

__all__ = ["pictures"]


def pictures(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the figure that the last expression of a block is; return the text that shows it."""
    values = block_vars["example_globals"]
    shown = values.get("___")
    if not isinstance(shown, Figure):
        return ""
    values["___"] = None  # no text of it, and not once more after the next block
    path = next(block_vars["image_path_iterator"])
    shown.savefig(path, dpi=100)
    return str(figure_rst([path], gallery_conf["src_dir"]))
