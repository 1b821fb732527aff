"""Documentation stays in plain English, as far as counting can tell, and within its size."""

import functools
import re
from pathlib import Path

from benchmarks import prose

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MARK = re.compile(r"^<!-- begin", re.MULTILINE)
GENERATED = re.compile(r"<!-- begin.*?<!-- end[^>]*-->", re.DOTALL)
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
PER_PAGE, TOGETHER = 15, 12
# A single construction in a short page is not more than that.
SHORTEST = 1000


@functools.cache
def counted(path):
    """Unidiomatic constructions, and words, of a file."""
    text = prose.text_of(path)
    return prose.found(text), prose.words(text)


def score(*names):
    counts = [counted(path) for path in prose.files([ROOT / name for name in names])]
    return 1e4 * sum(found for found, _ in counts) / sum(words for _, words in counts)


def test_pages_and_sources_are_in_plain_english():
    counts = {str(path.relative_to(ROOT)): counted(path) for path in [*PAGES, *SOURCES]}
    most = {name: PER_PAGE * max(words, SHORTEST) / 1e4 for name, (_, words) in counts.items()}
    assert {name: found for name, (found, _) in counts.items() if found > most[name]} == {}


def test_documentation_is_in_plain_english():
    assert score("README.md", "docs") <= TOGETHER
    assert score("src") <= PER_PAGE
    assert score("tests", "benchmarks", "experiments") <= 20


def test_bad_prose_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("What it costs is no problem of the rows, whose noise hides so much.\n")
    assert counted(page) == (5, 14)
    assert prose.score([page]) == score(page) > 1000


def test_only_evidence_has_generated_tables():
    marked = {page for page in PAGES if MARK.search(page.read_text())}
    assert {page.parent for page in marked} == {ROOT / "docs" / "evidence"}


def test_readme_and_docs_stay_within_their_size():
    """Words of text and of written tables, without code and without generated tables."""
    assert len((ROOT / "README.md").read_text().split()) <= 1000
    texts = [GENERATED.sub("", page.read_text()) for page in PAGES]
    assert sum(len(FENCED.sub("", text).split()) for text in texts) <= 70_000
