"""Documentation stays in plain English, as far as counting can tell, and within its size."""

import re
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_is_in_plain_english(page):
    text = prose.text_of(page)
    assert prose.found(text) <= PER_PAGE * max(prose.words(text), SHORTEST) / 1e4


def test_sources_are_in_plain_english():
    texts = {str(path.relative_to(ROOT)): prose.text_of(path) for path in SOURCES}
    most = {name: PER_PAGE * max(prose.words(text), SHORTEST) / 1e4 for name, text in texts.items()}
    odd = {name: prose.found(text) for name, text in texts.items()}
    assert {name: found for name, found in odd.items() if found > most[name]} == {}


def test_documentation_is_in_plain_english():
    assert prose.score([ROOT / "README.md", ROOT / "docs"]) <= TOGETHER
    assert prose.score([ROOT / "src"]) <= PER_PAGE
    assert prose.score([ROOT / name for name in ("tests", "benchmarks", "experiments")]) <= 20


def test_bad_prose_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("What it costs is no problem of the rows, whose noise hides so much.\n")
    assert prose.found(prose.text_of(page)) == 5
    assert prose.score([page]) > 1000


def test_only_evidence_has_generated_tables():
    marked = {page for page in PAGES if MARK.search(page.read_text())}
    assert {page.parent for page in marked} == {ROOT / "docs" / "evidence"}


def test_readme_and_docs_stay_within_their_size():
    """Words of text and of written tables, without code and without generated tables."""
    assert len((ROOT / "README.md").read_text().split()) <= 1000
    texts = [GENERATED.sub("", page.read_text()) for page in PAGES]
    assert sum(len(FENCED.sub("", text).split()) for text in texts) <= 70_000
