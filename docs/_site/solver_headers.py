"""Put the table of supported problems on top of each solver page."""

import re

HEAD = "| losses | penalty | constraint | pure | passes over the rows |\n|---|---|---|---|---|\n"


def write(source):
    """Add its line of the table to every page of ``source/solvers`` that the table links to."""
    text = (source / "solvers" / "index.md").read_text()
    for names, cells in re.findall(r"^\| (\[`.*?\)) \| (.*\|)$", text, re.MULTILINE):
        for name in re.findall(r"\]\((\w+\.md)\)", names):
            page = source / "solvers" / name
            title, rest = page.read_text().split("\n", 1)
            page.write_text(f"{title}\n\n{HEAD}| {cells}\n{rest}")
