"""A study: it follows its plan, rows are charged in their part, and it can be resumed."""

import dataclasses
import json
import math

import numpy as np
import pytest

from dpglm import (
    AdditiveClassifier,
    Adjacency,
    GaussianDP,
    PrivacyLedger,
    Study,
    ZeroConcentratedDP,
    describe,
)
from dpglm.certificate import Certificate, verify
from dpglm.exceptions import BudgetExceededError, PlanMismatchError
from dpglm.privacy import ApproximateDP, gdp
from dpglm.privacy.noise import SeededNoise
from dpglm.solvers import NoisySGD
from dpglm.solvers.checkpoint import read_arrays
from dpglm.study import Split
from dpglm.study.planning import ModelPart
from tests.study.support import PARTS, SCHEMA, learning, study, table, without

RELATIONS = [one.value for one in Adjacency]


def squares(event):
    """Sum of 1 / multiplier^2 of a composition of Gaussian releases, from its terms."""
    return sum(count / basic.noise_multiplier**2 for basic, count in event.terms)


class TestAccounting:
    @pytest.mark.parametrize("adjacency", RELATIONS)
    def test_a_row_pays_for_the_exploration_and_for_its_own_part(self, adjacency):
        made, _ = study(adjacency=adjacency, n_rows=600)
        plan = made.plan()
        cost = {name: squares(part.plan.event) for name, part in plan.planned.items()}
        whole = cost["exploration"] + max(cost["model"], cost["evaluation"])
        # The epsilon of that mu, by the closed form, is the budget's.
        assert gdp.epsilon(1e-5, math.sqrt(whole)) == pytest.approx(1.0, rel=1e-9)
        assert plan.epsilon <= 1.0
        assert plan.epsilon == pytest.approx(1.0, rel=1e-9)
        # Planted bugs: everything in sequence; a part that is not charged.
        assert sum(cost.values()) > 1.3 * whole
        assert whole > 1.01 * max(cost["model"], cost["evaluation"])

    def test_without_an_evaluation_nothing_is_divided(self):
        made, parts = study()
        result = without(made, "evaluation").run(table())
        cost = {name: squares(part.plan.event) for name, part in result.plan.planned.items()}
        assert gdp.epsilon(1e-5, math.sqrt(sum(cost.values()))) == pytest.approx(1.0, rel=1e-9)
        assert all(len(parts[name].seen[0]) == 600 for name in cost)

    @pytest.mark.parametrize("budget", [GaussianDP(0.3), ZeroConcentratedDP(0.04)])
    def test_budgets_in_other_currencies(self, budget):
        made, _ = study(budget=budget)
        plan = made.plan(600)
        assert math.sqrt(
            squares(plan.planned["exploration"].plan.event)
            + squares(plan.planned["model"].plan.event)
        ) == pytest.approx(budget.gdp_mu(), rel=1e-9)

    def test_non_gaussian_releases_are_accounted_together(self):
        inner = learning(solver=NoisySGD(n_steps=5, sampling_rate=0.2))
        made, _ = study()
        made = dataclasses.replace(made, parts={**made.parts, "model": inner})
        plan = made.plan(600)
        assert plan.epsilon <= 1.0
        assert plan.epsilon == pytest.approx(1.0, rel=5e-3)
        assert made.run(table()).verify().ok

    def test_a_large_delta(self):
        # Parts get less than a delta of 0.5 alone would allow.
        result = Study(SCHEMA, 0.1, 0.5).explore().fit().evaluate().run(table())
        assert result.verify().ok

    def test_pure_budgets_are_refused_before_anything(self):
        with pytest.raises(ValueError, match="delta"):
            Study(SCHEMA, delta=0.0)
        with pytest.raises(ValueError, match="delta"):
            Study(SCHEMA, budget=ApproximateDP(1.0, 0.0)).fit().plan(600)


class TestRows:
    @pytest.mark.parametrize("adjacency", RELATIONS)
    def test_no_row_is_in_two_parts_and_none_is_left_out(self, adjacency):
        made, parts = study(adjacency=adjacency, n_rows=600)
        rows = table()
        made.run(rows)
        (explored,), (learned,), (held_out,) = (parts[name].seen for name in PARTS)
        np.testing.assert_array_equal(explored, np.sort(rows["age"]))
        assert not np.intersect1d(learned, held_out).size
        np.testing.assert_array_equal(np.union1d(learned, held_out), np.sort(rows["age"]))
        if adjacency != "add_remove":
            assert (len(learned), len(held_out)) == (450, 150)

    def test_a_person_is_learned_from_or_held_out(self):
        rows = {**table(), "id": np.arange(600) // 3}
        made, parts = study(adjacency="add_remove", n_rows=600)
        made = dataclasses.replace(made, split=Split(0.3, "id"))
        result = made.run(rows)
        (learned,), (held_out,) = (parts[name].seen for name in PARTS[1:])
        whose = dict(zip(rows["age"], rows["id"], strict=True))
        persons = [{whose[age] for age in part} for part in (learned, held_out)]
        assert not persons[0] & persons[1]
        # Planted bug: a split by row.
        by_row = dataclasses.replace(made, split=Split(0.3))
        by_row.run(rows)
        persons = [{whose[age] for age in parts[name].seen[1]} for name in PARTS[1:]]
        assert persons[0] & persons[1]
        assert result.verify().ok
        assert "30 % of the persons" in result.privacy_.statement()

    def test_persons_are_told_or_refused(self):
        made = (
            Study(SCHEMA, delta=1e-5, adjacency="add_remove", n_rows=600).explore().fit("additive")
        )
        made = made.evaluate(persons="id")
        assert made.run({**table(), "id": [f"p{row // 2}" for row in range(600)]}).verify().ok
        with pytest.raises(ValueError, match="the data lack"):
            made.run(table())
        with pytest.raises(ValueError, match="row 3: the value is missing"):
            made.run({**table(), "id": ["a", "b", None] + ["c"] * 597})
        with pytest.raises(ValueError, match="add_remove"):
            Study(SCHEMA).fit().evaluate(persons="id")

    def test_splits_differ_from_run_to_run(self):
        made, parts = study()
        for _ in range(2):
            made.run(table())
        one, other = parts["evaluation"].seen
        assert not np.array_equal(one, other)


class TestPlans:
    @pytest.mark.parametrize("adjacency", RELATIONS)
    def test_plan_is_executed(self, adjacency):
        made, _ = study(adjacency=adjacency, n_rows=600)
        plan = made.plan()
        result = made.run(table(seed=3))
        assert result.privacy_.event == plan.event
        for name, part in plan.planned.items():
            assert result.privacy_.parts[name].plan == part.plan.document

    def test_nothing_planned_depends_on_rows(self):
        made, _ = study()
        rows = table()
        blank = {**rows, "age": np.zeros(600), "ill": np.zeros(600, dtype=int)}
        one, other = made.run(rows), made.run(blank)
        assert one.plan.event == other.plan.event

    def test_weak_promises_are_named_before_they_are_made(self):
        weak = Study(SCHEMA, epsilon=21.0, delta=0.01).explore().plan(600)
        assert str(weak).count("Caution: ") == len(weak.cautions()) == 2
        assert Study(SCHEMA, epsilon=1.0).explore().plan(600).cautions() == ()

    def test_bad_declarations_are_refused(self):
        with pytest.raises(ValueError, match="neither"):
            Study(SCHEMA).plan(100)
        with pytest.raises(ValueError, match="declared once"):
            Study(SCHEMA).fit().fit()
        with pytest.raises(ValueError, match="estimator must be one of"):
            Study(SCHEMA).fit("forest")
        with pytest.raises(ValueError, match="cannot predict"):
            Study(SCHEMA).fit("ridge")
        for adjacency, said in (
            ("add_remove", "n_rows must be given under adjacency 'add_remove', which keeps"),
            ("zero_out", "n_rows must be an integer of at least 1, got None"),
        ):
            with pytest.raises(ValueError, match=said):
                Study(SCHEMA, adjacency=adjacency).fit().plan()
        with pytest.raises(ValueError, match=r"n_rows must be given .* a rough public number"):
            Study(SCHEMA, adjacency="add_remove").fit().run(table())

    def test_bad_tables_cost_nothing(self, tmp_path):
        made, parts = study()
        for bad, said in (
            (None, "columns by name"),
            ({"age": [1.0]}, "the data lack"),
            ({**table(), "sex": ["x"] * 600}, "sex"),
            ({**table(), "age": np.zeros(3)}, "same number of rows"),
        ):
            with pytest.raises(ValueError, match=said):
                made.run(bad, checkpoint=tmp_path / "kept")
        assert not any(part.seen for part in parts.values())
        assert not (tmp_path / "kept").exists()


class TestInterruptions:
    def interrupted(self, made, part, folder, **options):
        part.interrupted.append(True)
        with pytest.raises(KeyboardInterrupt):
            made.run(table(), checkpoint=folder, **options)
        part.interrupted.clear()

    @pytest.mark.parametrize("name", PARTS)
    def test_releases_and_split_are_kept(self, name, tmp_path):
        made, parts = study()
        self.interrupted(made, parts[name], tmp_path)
        result = made.run(table(), checkpoint=tmp_path)
        again = made.run(table(), checkpoint=tmp_path)
        for one in PARTS:
            seen = parts[one].seen
            assert all(np.array_equal(seen[0], other) for other in seen)
            # The last bits of a replayed step depend on where matrices lie in memory.
            coef, same = (getattr(x, one).coef_ for x in (result, again))
            np.testing.assert_allclose(coef, same, rtol=1e-9)
        assert not np.intersect1d(parts["model"].seen[0], parts["evaluation"].seen[-1]).size

    def test_parts_that_are_done_are_not_released_again(self, tmp_path):
        made, parts = study()
        self.interrupted(made, parts["evaluation"], tmp_path)

        def released(name):
            arrays = read_arrays(tmp_path / name)
            return {one.tobytes() for key, one in arrays.items() if key != "header"}

        before = [released(name) for name in ("exploration", "model")]
        made.run(table(), checkpoint=tmp_path)
        assert [released(name) for name in ("exploration", "model")] == before

    def test_a_ledger_pays_once(self, tmp_path):
        ledger = PrivacyLedger.create(
            tmp_path / "ledger", data="people", budget=ApproximateDP(1.2, 1e-5)
        )
        made, parts = study()
        self.interrupted(made, parts["model"], tmp_path / "kept", ledger=ledger)
        result = made.run(table(), checkpoint=tmp_path / "kept", ledger=ledger)
        (entry,) = ledger.contents().entries
        assert entry.event == result.privacy_.event
        assert entry.what == "study: exploration, model, evaluation"
        assert ledger.verify([result.privacy_.ledger]) == ()
        with pytest.raises(BudgetExceededError):
            made.run(table(), ledger=ledger)

    def test_refused_fit_releases_nothing(self, tmp_path):
        path = tmp_path / "ledger"
        PrivacyLedger.create(path, data="people", budget=ApproximateDP(0.5, 1e-5))
        made, parts = study()
        with pytest.raises(BudgetExceededError):
            made.run(table(), ledger=path)
        with pytest.raises(ValueError, match="random_state"):
            made.run(table(), ledger=path, random_state=0)
        assert not any(part.seen for part in parts.values())

    def test_another_table_or_study_is_refused(self, tmp_path):
        made, parts = study()
        made.run(table(), checkpoint=tmp_path)
        rows = table()
        order = np.arange(600)[::-1]
        with pytest.raises(PlanMismatchError, match="order of its rows"):
            made.run({name: one[order] for name, one in rows.items()}, checkpoint=tmp_path)
        other = dataclasses.replace(made, split=Split(0.5))
        with pytest.raises(PlanMismatchError, match="split"):
            other.run(rows, checkpoint=tmp_path)
        assert len(parts["model"].seen) == 1


@pytest.fixture(scope="module")
def certificate():
    return study()[0].run(table()).privacy_


class TestCertificates:
    def test_it_holds_and_survives_a_file(self, certificate, tmp_path):
        found = verify(certificate)
        assert found.ok, found.summary()
        certificate.to_json(tmp_path / "certificate.json")
        assert Certificate.from_json(tmp_path / "certificate.json") == certificate
        assert certificate.epsilon == pytest.approx(1.0, rel=1e-9)

    def test_single_parts_equal_their_functions(self):
        rows, settings = table(), {"epsilon": 1.0, "delta": 1e-5}
        explored = Study(SCHEMA, **settings).explore().run(rows, random_state=SeededNoise(0))
        seen = describe(rows, SCHEMA, **settings, random_state=SeededNoise(0))
        np.testing.assert_allclose(explored.exploration.solution.w, seen.solution.w, rtol=1e-12)
        fitted = Study(SCHEMA, **settings).fit("additive").run(rows, random_state=SeededNoise(0))
        model = AdditiveClassifier(SCHEMA, **settings, random_state=SeededNoise(0)).fit(rows)
        np.testing.assert_allclose(fitted.model.coef_, model.coef_, rtol=1e-9)
        for one in (explored, fitted):
            assert one.verify().ok, one.verify().summary()

    def test_who_spent_what(self, certificate):
        spent = {one.stage: one for one in certificate.spending()}
        rest = 1.0 - spent["exploration"].share
        assert spent["model"].share == pytest.approx(rest)
        assert spent["evaluation"].share == pytest.approx(rest)
        text = certificate.statement()
        assert "all rows" in text
        assert "75 % of the rows, at random" in text

    def forged(self, certificate, change):
        document = json.loads(json.dumps(certificate.to_dict()))
        change(document)
        return verify(Certificate.from_dict(document))

    def test_a_smaller_epsilon_is_found(self, certificate):
        found = self.forged(certificate, lambda document: document.update(epsilon=0.9))
        assert any("claim, recomputed" in one for one in found.findings)

    def test_a_part_with_more_than_its_share_is_found(self, certificate):
        # As if the exploration had been given the whole budget, and not been charged for it.
        dear = study(epsilon=4.0)[0].run(table()).privacy_.to_dict()["parts"]["exploration"]
        found = self.forged(certificate, lambda d: d["parts"].update(exploration=dear))
        assert any("claim, recomputed" in one for one in found.findings)

    def test_rows_that_are_not_those_of_the_split_are_found(self, certificate):
        # As if the model had learned from all rows.
        found = self.forged(certificate, lambda d: d["split"].update(test_share=0.1))
        assert any("stated protection" in one for one in found.findings)

    def test_seeds_are_named(self):
        result = study()[0].run(table(), random_state=0)
        assert not result.privacy_.is_private
        assert any("NOT PRIVATE" in one for one in result.privacy_.caveats())
        assert result.verify().verdict.startswith("The certificate holds. NOT PRIVATE")
        assert study()[0].run(table()).verify().verdict == "The certificate holds."


def test_models_by_formula_name_and_object():
    made = Study(SCHEMA).fit("svm", formula="ill ~ age * C(sex)", C=2.0)
    assert isinstance(made.parts["model"], ModelPart)
    model = made.run(table()).model
    assert list(model.coefficient_names()) == ["age", "C(sex)[T.m]", "age:C(sex)[T.m]"]
    assert model.estimator_.C == 2.0
