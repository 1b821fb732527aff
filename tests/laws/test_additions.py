"""What the pages of docs/contributing say: an addition works as it is written there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import dpglm.solvers
from dpglm._registry import makers_in
from dpglm.certificate import verify
from dpglm.data.prepare import prepare_rows
from dpglm.estimators import LogisticRegression
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.noise import SeededNoise, SystemNoise
from dpglm.problem import L2, Logistic, Problem
from dpglm.solvers import NoisyGD, Solver, run
from tests import test_docs
from tests.laws import test_plan_codec_laws as codec_laws
from tests.laws import test_solver_laws as solver_laws

PAGES = Path(__file__).parents[2] / "docs" / "contributing"


def code_of(page: str, language: str = "python") -> list[str]:
    """Return the code of a page: that of new files, or lines (``py``) for files that exist."""
    found = test_docs.blocks((PAGES / page).read_text())
    return [block.code for block in found if block.language == language]


@pytest.fixture
def added(tmp_path, monkeypatch):
    """Make a module of the first code of a page, as a file of its own outside the repository."""

    def add(page: str, name: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(code_of(page)[0])
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()
        # A module that was made before would stand in for this one.
        monkeypatch.delitem(importlib.sys.modules, name, raising=False)
        return importlib.import_module(name)

    return add


def evaluated(line: str, *namespaces: ModuleType) -> Any:
    known = {name: value for one in namespaces for name, value in vars(one).items()}
    return eval(line, known)


class TestSolver:
    PAGE = "adding_a_solver.md"

    @pytest.fixture
    def module(self, added):
        return added(self.PAGE, "heavy_ball")

    @pytest.fixture
    def registered(self, module, monkeypatch):
        """Export it, and add its row to the law."""
        export, row = code_of(self.PAGE, "py")
        assert re.search(r"import HeavyBall$", export.strip())
        found = makers_in({**vars(dpglm.solvers), "HeavyBall": module.HeavyBall}, Solver)
        assert found.keys() - dpglm.solvers.SOLVERS.keys() == {"heavy_ball"}
        ((name, case),) = evaluated(f"{{{row}}}", solver_laws, module).items()
        assert name == "heavy_ball"
        monkeypatch.setitem(solver_laws.SOLVERS, name, case)
        return found[name]

    def test_keeps_the_law_of_solvers(self, registered):
        for adjacency, epsilon in zip(Adjacency, (0.1, 1.0, 8.0), strict=True):
            solver_laws.test_plans_are_within_budget_and_what_happens_is_planned(
                "heavy_ball", adjacency, epsilon
            )
        solver_laws.test_noise_falls_as_epsilon_grows_and_doubles_for_replace_one("heavy_ball")
        for problem in solver_laws.PROBLEMS[::4]:
            solver_laws.test_reaches_the_optimum_where_privacy_is_nearly_free("heavy_ball", problem)

    def test_plans_come_back_and_certificates_verify(self, registered):
        for plan in codec_laws.plans_of(registered()):
            codec_laws.comes_back(plan)
        plan = next(codec_laws.plans_of(registered()))
        codec_laws.is_rebuilt(codec_laws.certified(plan))

    def test_resumes_from_a_checkpoint(self, module, tmp_path):
        problem = Problem(Logistic())
        X, y, spec = solver_laws.make_data(problem)
        plan = module.HeavyBall(n_steps=5).plan(problem, ApproximateDP(1.0, 1e-5), spec)
        rows, kept, steps = prepare_rows(X, y, spec), tmp_path / "kept", []

        def note(info):
            steps.append(info.step)
            if len(steps) == 2:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            run(plan, rows, SystemNoise(), note, checkpoint=kept)
        run(plan, rows, SystemNoise(), note, checkpoint=kept)
        assert steps == [1, 2, 3, 4, 5]

    def test_is_noisy_gradient_descent_bit_for_bit(self, module):
        problem = Problem(Logistic(), L2(0.1))
        X, y, spec = solver_laws.make_data(problem)
        rows, budget = prepare_rows(X, y, spec), ApproximateDP(1.0, 1e-5)
        ours, theirs = (
            run(solver.plan(problem, budget, spec), rows, SeededNoise(0)).w
            for solver in (module.HeavyBall(n_steps=30), NoisyGD(n_steps=30))
        )
        np.testing.assert_array_equal(ours, theirs)

    def test_fits_an_estimator_whose_certificate_verifies(self, module):
        X, y, _ = solver_laws.make_data(Problem(Logistic()))
        model = LogisticRegression(classes=[-1, 1], row_norm=1.0, solver=module.HeavyBall())
        assert verify(model.fit(X, y).privacy_).ok

    def test_a_planted_bug_breaks_the_law(self, registered, module, monkeypatch):
        # A step that asks twice is not what was planned.
        step = module.HeavyBallMethod.step

        def twice(self, state, oracle):
            oracle.noisy_gradient(self.gradients, state.w, self.clipping)
            return step(self, state, oracle)

        monkeypatch.setattr(module.HeavyBallMethod, "step", twice)
        with pytest.raises(Exception, match="planned"):
            solver_laws.test_plans_are_within_budget_and_what_happens_is_planned(
                "heavy_ball", Adjacency.ZERO_OUT, 1.0
            )
