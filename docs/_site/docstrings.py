"""The shown parts of docstrings: our own methods only; privacy stands out as a box."""

import re


def skip(app, what, name, obj, skipped, options):
    """Leave out methods that scikit-learn and others define and document."""
    home = getattr(obj, "__module__", None) or "dpglm"
    return True if not home.startswith("dpglm") else None


def box(app, what, name, obj, options, lines):
    """Turn a paragraph that begins with ``Privacy:`` into an admonition."""
    shown = []
    indent = None
    for line in lines:
        found = re.match(r"( *)Privacy: (.*)", line)
        if found:
            indent = "   "
            shown += [f"{found[1]}.. admonition:: Privacy", "", f"{found[1]}{indent}{found[2]}"]
        else:
            indent = indent if line.strip() else None
            shown.append(f"{indent or ''}{line}")
    lines[:] = shown


def plain(app, what, name, obj, options, signature, returns):
    """Defaults that are made anew for each object are shown as dots."""
    return (signature or "").replace("<factory>", "...") or None, returns


def setup(app):
    """Register with Sphinx; the box comes after numpydoc has laid out the sections."""
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-docstring", box, priority=900)
    app.connect("autodoc-process-signature", plain, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
