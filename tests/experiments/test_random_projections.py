"""The comparisons of d2p2 and of embeddings: every method runs, tables land in their place."""

from __future__ import annotations

import dataclasses
import re

import pytest

from dpglm.privacy import ApproximateDP
from experiments import arora2022_johnson_lindenstrauss as embeddings
from experiments import d2p2


@pytest.fixture(scope="module")
def task():
    return d2p2.adult(quick=True)


def test_methods_differ_in_text_only(task):
    plans = {
        name: make(1.0).plan(task.problem, ApproximateDP(1.0, 1e-5), task.rows.spec)
        for name, make in task.methods.items()
    }
    assert len(plans) == 8
    for name, plan in plans.items():
        assert plan.n_steps == task.n_steps
        assert plan.privacy()["epsilon"] == pytest.approx(1.0, rel=1e-3)
        kinds = {type(event).__name__ for event, _ in plan.event.terms}
        projected = "projection" in name or "both" in name or "least" in name
        assert kinds == {"ProjectedGaussian" if projected else "Gaussian"}
        fades = "1/sqrt" in name or "exponential" in name or "both" in name
        assert (len(plan.event.terms) > 1) == fades


def test_a_table_has_a_line_for_each_method(task, monkeypatch):
    monkeypatch.setattr(d2p2, "STEP_FACTORS", (0.5, 1.0))
    few = {name: task.methods[name] for name in ("DP-SGD", "D2P2-SGD: both")}
    table = d2p2.compare(dataclasses.replace(task, methods=few, epsilons=(1.0,)), seeds=2)
    lines = table.splitlines()
    assert lines[0] == "| Adult, AUC | epsilon 1 |"
    for line in lines[2:]:
        assert re.fullmatch(r"\| [\w :-]+ \| 0\.\d{4} ± 0\.\d{4} \((0\.5|1)\) \|", line)
    assert len(lines) == 4


def test_embeddings_are_measured(monkeypatch):
    monkeypatch.setattr(embeddings, "PENALTIES", embeddings.PENALTIES[:1])
    monkeypatch.setattr(embeddings, "EPSILONS", (1.0,))
    lines = embeddings.measure(quick=True).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == [
        "plain (`noisy_gd`)",
        "k = 32",
        "k = 128",
        "k by the rule",
    ]
