"""Public names in code font link to their pages, in Markdown and docstrings alike.

A name that begins with ``dpglm.`` must exist; where it does not, the build fails.
"""

import pkgutil
import re

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

NAME = re.compile(r"(?:[A-Za-z]\w*\.)*[A-Za-z]\w*(?=(?:\(.*\))?$)")
# Common words in code font are parameters or variables more often than functions of that name.
TELLING = re.compile(r"[A-Z]\w|.*[._]")
log = logging.getLogger(__name__)


class LinkedNames(SphinxPostTransform):
    """Replaces literals that name one documented object by links to it."""

    default_priority = 500

    def run(self, **kwargs):
        """Link every literal outside links and headings."""
        for literal in list(self.document.findall(nodes.literal)):
            if isinstance(literal.parent, nodes.reference | nodes.title):
                continue
            found = NAME.match(literal.astext())
            if found and TELLING.match(found[0]):
                self._link(literal, found[0])

    def _link(self, literal, name):
        known = self.env.domaindata["py"]["objects"]
        ends = {full for full in known if full == name or full.endswith(f".{name}")}
        if "." not in name:
            # A bare name is a class or a function, not a method or a parameter of its name.
            kinds = {"class", "exception", "function", "data"}
            ends = {full for full in ends if known[full].objtype in kinds}
        homes = {known[full].docname: full for full in ends if not known[full].aliased}
        if len(homes) == 1:
            ((page, full),) = homes.items()
            if not within(literal, full):
                here, builder = self.env.docname, self.app.builder
                literal.replace_self(make_refnode(builder, here, page, full, literal.deepcopy()))
        elif name.startswith("dpglm.") and not exists(name):
            log.warning("no such name: %s", name, location=literal)


def within(node, full):
    """Tell whether a node is part of an object's own documentation."""
    while node.parent is not None:
        node = node.parent
        if isinstance(node, addnodes.desc) and any(full in sign["ids"] for sign in node[:-1]):
            return True
    return False


def exists(name):
    """Tell whether a dotted name can be imported."""
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError):
        return False
    return True


def setup(app):
    """Register with Sphinx."""
    app.add_post_transform(LinkedNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
