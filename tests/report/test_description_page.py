"""The page about a description: complete, escaped, and made of releases only."""

import re

import numpy as np
import pytest

from dpglm.exploration import describe
from dpglm.report.description_page import description_page, write_description
from dpglm.tables.schema import Schema

pytest.importorskip("jinja2")

SCHEMA = {
    "columns": {
        "age <b>": {"type": "numeric", "low": 0, "high": 100},
        "region": {"type": "categorical", "categories": ["<north>", "south"]},
    },
    "target": {"name": "ill", "type": "binary", "classes": ["no", "yes"]},
    "provenance": "made up",
}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return {
        "age <b>": rng.normal(50, 20, 2000),
        "region": rng.choice(["<north>", "south"], 2000),
        "ill": rng.choice(["no", "yes"], 2000),
    }


def page(table, **options):
    made = describe(table, Schema.from_dict(SCHEMA), epsilon=1.0, **options)
    return description_page(made, title="A <look>")


def test_everything_is_there_and_escaped(table):
    text = page(table, two_way=[("region", "ill")], correlations=True)
    for shown in ("A &lt;look&gt;", "age &lt;b&gt;", "&lt;north&gt;", "region by ill", "median"):
        assert shown in text
    assert "<north>" not in text
    assert "age &lt;b&gt; and ill" in text
    assert "Private." in text
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:)""", text)


def test_bars_and_intervals_stay_on_their_tracks(table):
    text = page(table, correlations=True)
    lengths = re.findall(r"left:([\d.]+)%?;width:([\d.]+)%", text)
    assert len(lengths) > 20
    for start, length in lengths:
        assert 0.0 <= float(start) <= 100.0
        assert float(start) + float(length) <= 100.6


def test_groups_are_headings(table):
    text = page(table, by="region")
    assert "region: south" in text
    # There are none.
    assert "region: missing" not in text
    assert "Levels that may be empty are not shown" in text


def test_a_seed_is_said(table, tmp_path):
    made = describe(table, Schema.from_dict(SCHEMA), random_state=0)
    write_description(made, tmp_path / "page.html")
    assert "NOT PRIVATE" in (tmp_path / "page.html").read_text()


def test_dates_are_dates_in_text_and_page():
    columns = {"opened": {"type": "date", "low": "2019-01-01", "high": "2021-12-31"}}
    schema = {"columns": columns, "provenance": "made up"}
    days = np.datetime64("2020-01-01") + np.arange(6000) % 301
    found = describe({"opened": days}, schema, epsilon=20.0, random_state=0)
    one = found["opened"].quantiles[0.5]
    first = np.datetime64("1970-01-01")
    median, low, high = (first + round(day) for day in (one.estimate, one.low, one.high))
    assert abs(median - np.datetime64("2020-05-30")) < np.timedelta64(5, "D")
    assert f"50 %: {median} [{low}, {high}]" in str(found.summary())
    assert "standard deviation 8" in str(found.summary())
    text = re.sub(r"<[^>]+>|\s+", " ", description_page(found))
    assert re.search(rf"median +{median} +{low} to {high} ", text)
