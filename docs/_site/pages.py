"""The pages of the site: docs/ and the repository's own, with links between where they now are."""

import os
import re
import shutil
from pathlib import Path

# Pages of the repository that are pages of the site, too.
OWN = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "src/dpglm/datasets/files/LICENSES.md",
)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")
ENTRY = re.compile(r"\[([^\]]+)\]\(([^)\s#]+)\)")
LEFT_OUT = ("_site", "gallery", "conf.py", "__pycache__")


def gather(root, source):
    """Copy all pages to ``source``; those of docs/ to its top, next to the repository's own."""
    shutil.copytree(root / "docs", source, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for page in sorted((root / "docs").rglob("*.md")):
        copy = source / page.relative_to(root / "docs")
        copy.write_text(moved(page, root, copy, source))
    for name in map(Path, OWN):
        (source / name.name).write_text(moved(root / name, root, source / name.name, source))
    for index in source.rglob("index.md"):
        index.write_text(index.read_text() + contents(index, source))


def moved(page, root, copy, source):
    """Return the text of a page with its links as seen from its copy."""

    def target(found):
        there = (page.parent / found[1]).resolve().relative_to(root)
        if there.parts[0] == "docs":
            new = source.joinpath(*there.parts[1:])
            new = new / "index.rst" if there.name == "gallery" else new
        else:
            new = source / there.name if there.as_posix() in OWN else root / there
        return os.path.relpath(new, copy.parent)

    return LINK.sub(target, page.read_text())


def contents(index, source):
    """Return navigation for an index: the pages that it links to, by section at the top."""
    captions = {}
    sections = re.split(r"^## (.+)$", index.read_text(), flags=re.MULTILINE)
    for caption, text in zip(["Pages", *sections[1::2]], sections[::2], strict=True):
        for title, link in ENTRY.findall(text):
            there = (index.parent / link).resolve()
            if there.suffix in {".md", ".rst"} and there.is_relative_to(index.parent):
                # A page belongs to the last section that names it.
                captions.pop(link, None)
                captions[link] = (caption, title.replace("`", ""))
    # A page next to an index in a folder of its own need not be linked to.
    for page in sorted(index.parent.glob("*.md")) if index.parent != source else ():
        if page != index and page.name not in captions:
            captions[page.name] = ("Pages", page.stem)
    trees = {}
    for link, (caption, title) in captions.items():
        trees.setdefault(caption, []).append(f"{title} <{link}>\n")
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{''.join(lines)}```\n"
        for caption, lines in trees.items()
    )
