"""Measurements for docs/evidence/papers.md: references are right, and the page is complete."""

from __future__ import annotations

import csv
import importlib
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq

from dpglm.problem import L2, L1Ball, Logistic, Problem, Simplex
from experiments import (
    papers_page,
    song2021_clipping,
    song2021_dimension,
    sun2023_tables,
    theorem_rates,
    wang2017_tables,
)
from experiments.measured import put, spread

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = (DOCS / "evidence" / "papers.md").read_text()

PACKAGES = ("papers", "solvers", "problem", "privacy", "preprocessing", "datasets", "torch")
PACKAGES += ("selection", "privacy.events", "privacy.noise")

# Numbered statements, algorithms, tables and figures of each paper.
ITEMS = {
    "song2021": (
        *("Algorithm 1", "Theorem 2.6", "Theorem 2.7", "Theorem 3.1", "Theorem 3.2", "Theorem 3.3"),
        *("Theorem 4.1", "Lemma 5.1", "Corollary 5.2", "Theorem 5.3", "Figure 1", "Figure 2"),
    ),
    "arora2022": (
        *("Table 1", "Algorithm 1", "Algorithm 2", "Algorithm 3", "Algorithm 4"),
        *(f"Theorem {number}" for number in range(1, 9)),
    ),
    "sun2023": (
        *("Algorithm 1", "Algorithm 2", "Algorithm 3", "Theorem 1", "Theorem 2", "Theorem 3"),
        *("Table 1", "Table 2"),
    ),
    "wang2017": (
        *("Algorithm 1", "Algorithm 2", "Algorithm 3", "Algorithm 4", "Table 1", "Table 2"),
        *("Table 3", "4.1", "4.2", "4.3", "4.4", "5.3", "5.4", "6.1", "6.2", "6.3"),
    ),
    "d2p2": (
        "Algorithm 1",
        "Theorem 1",
        "Theorems 2 and 3",
        "Table 1",
        "Table 2",
        "Figures 1 to 5",
    ),
}


def section(paper):
    """A paper's part of the page."""
    (start,) = re.finditer(rf"^## {paper}", PAGE, re.MULTILINE)
    return PAGE[start.end() :].split("\n## ")[0]


def exists(name):
    """Return whether a name is public in dpglm, or a dotted name leads to something."""
    if not name.startswith(("dpglm.", "experiments.")):
        homes = ("dpglm", *(f"dpglm.{one}" for one in PACKAGES))
        first = name.partition(".")[0]
        home = next((one for one in homes if hasattr(importlib.import_module(one), first)), "")
        name = f"{home}.{name}"
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError):
        return False
    return True


class TestPage:
    @pytest.mark.parametrize("paper", ITEMS)
    def test_every_item_has_a_line(self, paper):
        assert [item for item in ITEMS[paper] if item not in section(paper)] == []

    def test_every_line_has_a_verdict(self):
        for paper in ITEMS:
            table = section(paper).split("| item |")[1].split("\n\n")[0]
            lines = [line.split("|") for line in table.splitlines()[2:]]
            verdicts = {line[1].strip(): line[5].strip() for line in lines}
            assert [item for item, said in verdicts.items() if not said or "open" in said] == []

    def test_names_in_dpglm_exist(self):
        missing = []
        for paper in ITEMS:
            table = section(paper).split("| item |")[1].split("\n\n")[0]
            for line in table.splitlines()[2:]:
                names = re.findall(r"`([A-Za-z_][\w.]*)(?:\([^`]*\))?`", line.split("|")[3])
                missing += [name for name in names if not exists(name)]
        assert set(missing) - {"sqrt"} == set()
        assert not exists("GeneralizedExponential")
        assert not exists("Constraint.width")

    def test_every_place_is_filled(self):
        pages = [PAGE, (DOCS / "evidence" / "solvers.md").read_text()]
        places = [
            found
            for page in pages
            for found in re.findall(
                r"<!-- begin measured: ([\w ]+) -->(.*?)<!-- end measured: \1 -->", page, re.DOTALL
            )
        ]
        assert len(places) == 22
        assert [name for name, text in places if "|" not in text] == []

    def test_figure_agrees_with_text(self):
        with (DOCS / "figures" / "song2021_dimension.csv").open() as file:
            rows = [
                (one["curve"], int(one["x"]), float(one["mean"])) for one in csv.DictReader(file)
            ]
        found = {(curve, x): mean for curve, x, mean in rows}
        gaussian, l2 = "Gaussian noise", "L2 noise, same delta"
        assert abs(found[gaussian, 4096] - found[gaussian, 8]) < 0.01
        assert found[l2, 4096] < found[l2, 8] - 0.03

    def test_text_is_put_between_its_marks(self, tmp_path):
        page = tmp_path / "page.md"
        page.write_text("a\n<!-- begin measured: x -->\nold\n<!-- end measured: x -->\nb")
        for _ in range(2):
            put(page, "x", "new")
        text = "a\n<!-- begin measured: x -->\n\nnew\n\n<!-- end measured: x -->\nb"
        assert page.read_text() == text
        assert spread([1.0, 2.0, 3.0], 1) == "2.0 ± 1.0"


class TestDimension:
    def test_rows_must_be_named(self, tmp_path, capsys):
        for given in ([], ["--data", str(tmp_path), "--generated"]):
            with pytest.raises(SystemExit):
                song2021_dimension.main([*given, "--docs", str(tmp_path)])
        assert "--data" in capsys.readouterr().err
        with pytest.raises(FileNotFoundError, match="cod-rna"):
            song2021_dimension.main(["--data", str(tmp_path), "--docs", str(tmp_path)])

    def test_generated_rows_write_nothing(self, tmp_path, monkeypatch):
        monkeypatch.setattr(song2021_dimension, "measure", lambda folder, quick: [])
        song2021_dimension.main(["--generated", "--docs", str(tmp_path)])
        assert list(tmp_path.iterdir()) == []

    def test_whole_page_never_leaves_data_out_silently(self, tmp_path):
        inputs = papers_page.Inputs(tmp_path, tmp_path, tmp_path, quick=False)
        for name in ("song2021_dimension", "sun2023_tables", "d2p2_networks"):
            with pytest.raises(FileNotFoundError):
                papers_page.PARTS[name](inputs)


class TestClipping:
    @pytest.mark.parametrize("clip", song2021_clipping.CLIPS)
    def test_the_minimum_is_where_clipped_slopes_balance(self, clip):
        def slope(w):
            up, down = 1.0 / (1.0 + np.exp(w)), 1.0 / (1.0 + np.exp(-w))
            share = song2021_clipping.POSITIVE
            return (1.0 - share) * min(down, clip) - share * min(up, clip)

        root = brentq(slope, -1.0, 20.0, xtol=1e-14)
        assert song2021_clipping.clipped_minimum(clip) == pytest.approx(root, abs=1e-9)

    def test_only_clipped_gradients_circulate(self):
        assert abs(song2021_clipping.circulation(2.0)) < 1e-9
        assert abs(song2021_clipping.circulation(2.0, by_class=True)) < 1e-9
        assert abs(song2021_clipping.circulation(0.5)) > 1e-4
        assert abs(song2021_clipping.circulation(0.5, by_class=True)) > 1e-4


class TestReferences:
    def test_concentration_is_that_of_all_pairs(self):
        X = np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)
        pairs = np.linalg.norm(X[:, np.newaxis] - X[np.newaxis], axis=2)
        away = np.linalg.norm(X - X.mean(axis=0), axis=1)
        expected = (pairs.max(), away.max(), away.mean())
        assert sun2023_tables.concentration(X) == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("constraint", [L1Ball(2.0), Simplex(2.0), None], ids=repr)
    def test_no_point_of_the_set_has_less_than_the_least_risk(self, constraint):
        X, y = wang2017_tables.rows(400, 6, 3.0, 2.0, sparse=True)
        problem = (
            Problem(Logistic(), constraint=constraint)
            if constraint
            else Problem(Logistic(), L2(0.1))
        )
        case = wang2017_tables.Case("", problem, X, y, 1.0)
        least = wang2017_tables.least_risk(case)
        rng = np.random.default_rng(1)
        tried = [problem.constraint.project(rng.normal(size=6) * 2.0) for _ in range(500)]
        assert min(case.risk(w) for w in tried) >= least - 1e-7
        assert case.risk(problem.constraint.project(np.zeros(6))) > least

    def test_refused_problems_are_said_to_be(self):
        cases = wang2017_tables.geometry(quick=True)[1:]
        solvers = {"Frank-Wolfe": wang2017_tables.GEOMETRY["Frank-Wolfe ([29])"]}
        assert "refused" in wang2017_tables.table(cases, solvers, 2)

    def test_rates_that_are_worse_than_allowed_are_called_worse(self):
        assert theorem_rates.verdict(-1.0, -0.5, 0.1) == "**worse**"
        assert theorem_rates.verdict(-1.0, -1.5, 0.1) == "as the theorem allows"
        assert theorem_rates.verdict(-1.0, -0.85, 0.1) == "as the theorem allows"

    def test_a_rate_is_measured(self):
        rate = next(one for one in theorem_rates.RATES if "6.2" in one.theorem)
        slope, _ = rate.measure(seeds=2, sizes=3).slope
        assert slope < -1.0
