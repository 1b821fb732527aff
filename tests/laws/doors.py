"""Public doors through which rows come in, and pairs of neighbouring tables to send through them.

In the manner of Re:cord-play (Cebere and others, arXiv 2602.17454): a run is recorded, and replayed
on a neighbour with all released values frozen. Then everything public must be the same:
the questions, results, warnings and errors; and no release moves further than was
declared.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import math
import sys
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar
from unittest import mock

import numpy as np

import dpglm
from dpglm import (
    AdditiveClassifier,
    AdditiveRegressor,
    BinomialRegressor,
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    NoisyGD,
    PoissonRegressor,
    PrivateGridSearchCV,
    PrivatePipeline,
    RidgeClassifier,
)
from dpglm.certificate import execution
from dpglm.data.groups import GroupedRows
from dpglm.data.split import side_of
from dpglm.estimators import _private as _family
from dpglm.estimators.linear import _base
from dpglm.preprocessing import (
    Center,
    ClipToQuantile,
    InstanceOptimalCenter,
    RandomProjection,
    Scale,
    SchemaEncoder,
    Whiten,
)
from dpglm.privacy import Adjacency
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers import D2P2, SOLVERS, JohnsonLindenstrauss, NoisySGD, dpsgd_f
from dpglm.study import Study, running
from tests.laws.transcripts import Transcript, excess, listening

__all__ = ["DOORS", "OF_ROWS", "UNITS", "World", "compared", "of_erased_rows", "suited"]

N, SIZES = 40, (1, 5, 2, 3, 1, 6, 4, 7, 2, 9)
UNITS = ("opposed", "alone in its class", "alone in its category", "alone with a weight", "usual")
COLUMNS = {
    "a": {"type": "numeric", "low": -1, "high": 1},
    "b": {"type": "numeric", "low": -1, "high": 1},
    "c": {"type": "categorical", "categories": ["p", "q", "rare"]},
}
TARGETS = {
    "label": {"name": "label", "type": "binary", "classes": ["no", "yes"]},
    "kind": {"name": "kind", "type": "classes", "classes": ["u", "v", "rare"]},
    "size": {"name": "size", "type": "numeric", "low": 0, "high": 3},
}


@dataclasses.dataclass(frozen=True)
class World:
    """How two tables differ: in their last row, or in all rows of their last group."""

    relation: Adjacency = Adjacency.ZERO_OUT
    grouped: bool = False
    weighted: bool = True
    unit: str = "opposed"
    seed: int = 0

    @property
    def n_units(self) -> int:
        return len(SIZES) if self.grouped else N

    def tables(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return both; where a unit is erased, that is done to prepared rows (``erasing``)."""
        rng = np.random.default_rng(self.seed)
        last = SIZES[-1] if self.grouped else 1
        rest = self._rows(rng, N - last)
        if self.unit == "alone with a weight":
            rest["w"][:] = 0.0
        one = _joined(rest, self._unit(last, 1.0))
        if self.relation is Adjacency.ZERO_OUT:
            return one, one
        if self.relation is Adjacency.ADD_REMOVE:
            return one, rest
        other = self._unit(last + 3 if self.grouped else 1, -1.0)
        return one, _joined(rest, other)

    def _rows(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        a, b = rng.uniform(-1.0, 1.0, (2, n))
        if self.unit == "opposed":
            a[:], b[:] = -1.0, -1.0
        found = {
            "a": a,
            "b": b,
            "c": rng.choice(["p", "q"], n),
            "label": np.where(a + rng.normal(size=n) > 0.0, "yes", "no"),
            "kind": rng.choice(["u", "v"], n),
            "size": rng.integers(0, 4, n).astype(float),
            "score": rng.uniform(0.0, 1.0, n),
            "w": rng.choice([0.0, 0.5, 1.0, 7.0], n),
            "id": np.repeat([f"g{i}" for i in range(len(SIZES))], SIZES)[:n],
        }
        return found | {"amount": found["score"] + 0.01}

    def _unit(self, n: int, sign: float) -> dict[str, np.ndarray]:
        reach = 0.3 if self.unit == "usual" else 1e6
        lone = sign > 0.0
        found = {
            "a": sign * reach,
            "b": sign * reach,
            "c": "rare" if lone and self.unit == "alone in its category" else "pq"[lone],
            "label": "yes" if lone else "no",
            "kind": "rare" if lone and self.unit == "alone in its class" else "uv"[lone],
            "size": 3.0 * lone,
            "score": float(lone),
            "amount": lone + 0.01,
            "w": 9.0,
            "id": "g9",
        }
        return {name: np.full(n, value) for name, value in found.items()}

    def facts(self) -> dict[str, Any]:
        """Return the declared size of an estimator, a description or an evaluation."""
        known: dict[str, Any] = {"adjacency": self.relation.value}
        if not self.relation.n_is_public:
            known |= {"n_rows": N} | ({"n_groups": len(SIZES)} if self.grouped else {})
        elif self.grouped and self.relation is Adjacency.REPLACE_ONE:
            known["n_rows"] = N
        return known


def _joined(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([one[name], other[name]]) for name in one}


class EachCall(NoiseSource):
    """Words that depend on how many calls were before, and not on how many words each drew.

    So one row more, at the end, leaves all that is random about the others as it is.
    """

    name: ClassVar[str] = "of each call"
    is_private: ClassVar[bool] = False

    def __init__(self, seed: int) -> None:
        self._seed, self._calls = seed, 0

    def words(self, count: int) -> np.ndarray:
        self._calls += 1
        bits = np.random.Philox(key=[self._seed, self._calls])
        return bits.random_raw(count).astype(np.uint64)


@contextlib.contextmanager
def erasing(every: bool = False) -> Iterator[None]:
    """Erase the last unit of all prepared rows, or every one: weight 0 after preparation."""
    there, divide = [True], running._rows_of

    def divided(part: str, table: Any, held_out: Any) -> Any:
        side = side_of(part)
        there[0] = held_out is None or side is None or bool(held_out[-1]) == bool(side)
        return divide(part, table, held_out)

    def erased(rows: Any) -> Any:
        if isinstance(rows, GroupedRows):
            inner, first = rows._rows, rows._starts[-2]
        else:
            inner, first = rows, rows.n_rows - 1
        changed = copy.copy(inner)
        kept = inner._weights
        changed._weights = np.ones(len(inner._norms), inner._norms.dtype) if kept is None else kept
        changed._weights = changed._weights.copy()
        changed._weights[0 if every else first :] = 0.0
        return GroupedRows(changed, rows._starts) if inner is not rows else changed

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(running, "_rows_of", divided))
        for module in (_base, execution):

            def run(plan: Any, rows: Any, *rest: Any, honest: Any = module.run, **more: Any) -> Any:
                return honest(plan, erased(rows) if there[0] else rows, *rest, **more)

            stack.enter_context(mock.patch.object(module, "run", run))
        yield


def compared(door: str, world: World) -> tuple[float, int]:
    """Return the largest move over its declared bound, and the number of releases.

    Infinity where questions, results, warnings or errors differ.
    """
    one, other = world.tables()
    first, came = _through(door, world, one)
    second, back = _through(door, world, other, first, world.relation is Adjacency.ZERO_OUT)
    ratio = excess(first, second)
    return (ratio if came == back else math.inf), len(first.asked)


def of_erased_rows(door: str, world: World) -> Any:
    """Return the result with every row erased; raise its error."""
    with erasing(every=True):
        return DOORS[door](world, world.tables()[0])


def _through(
    door: str,
    world: World,
    table: dict[str, np.ndarray],
    earlier: Transcript | None = None,
    erase: bool = False,
) -> tuple[Transcript, str]:
    """Send a table through a door; return the releases, and all other public outputs.

    Neither run knows of the other, so warnings of repeated fits are those of a new process.
    """
    place = {"missing": world.n_units - 1, "n": world.n_units}
    with (
        listening(earlier, **place) as seen,
        erasing() if erase else contextlib.nullcontext(),
        mock.patch.object(_family, "_FITS", type(_family._FITS)()),
        warnings.catch_warnings(record=True) as told,
    ):
        warnings.simplefilter("always")
        try:
            found = DOORS[door](world, table)
        except (ValueError, RuntimeError) as error:
            found = f"{type(error).__name__}: {error}"
    said = [f"{one.category.__name__}: {one.message}" for one in told]
    return seen, json.dumps([found, said], default=_plain, sort_keys=True)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else repr(value)


# Each door returns all that may be published.


def _given(world: World, table: dict[str, np.ndarray], target: str, **more: Any) -> dict[str, Any]:
    given = {"y": table[target], **more}
    if world.weighted:
        given["sample_weight"] = table["w"]
    if world.grouped:
        given["groups"] = table["id"]
    return given


def _shown(model: Any) -> list[Any]:
    solution = model.solution_
    shown = [model.coef_, model.intercept_, solution.w, model.privacy_.to_dict()]
    with contextlib.suppress(AttributeError):
        shown.append(str(model.inference_))
    return shown


def _fit(make: Any, target: str, **options: Any) -> Any:
    def door(world: World, table: dict[str, np.ndarray]) -> list[Any]:
        own = {"feature_bounds": (-1, 1), "weight_bound": 1.0, "epsilon": 5.0, "delta": 1e-3}
        noise = EachCall(world.seed)
        model = make(**{**own, **world.facts(), **options, "random_state": noise})
        return _shown(model.fit(matrix(table), **_given(world, table, target)))

    return door


def matrix(table: dict[str, np.ndarray]) -> np.ndarray:
    return np.column_stack([table["a"], table["b"], table["c"] == "rare"])


# By default these take hundreds of steps, which are alike.
FEWER = {
    "noisy_gd": NoisyGD(n_steps=5),
    "noisy_sgd": NoisySGD(n_steps=5),
    "d2p2": D2P2(n_steps=5),
    "dpsgd_f": dpsgd_f(NoisyGD(n_steps=5)),
    "johnson_lindenstrauss": JohnsonLindenstrauss(gradient_descent=NoisyGD(n_steps=5)),
}
LABELS = {"classes": ["no", "yes"]}
KINDS = {"classes": ["u", "v", "rare"]}
NUMBERS = {"target_bounds": (0, 3)}


def _solvers() -> Iterator[tuple[str, Any]]:
    for name in SOLVERS:
        if name == "prototypes":
            yield name, _fit(RidgeClassifier, "kind", solver=name, **KINDS)
        elif name in ("sufficient_statistics", "svrg", "frank_wolfe", "output_perturbation"):
            yield name, _fit(LinearRegression, "size", solver=name, **NUMBERS)
        else:
            solver = FEWER.get(name, name)
            yield name, _fit(LogisticRegression, "label", solver=solver, **LABELS)


def _offset(world: World, table: dict[str, np.ndarray]) -> list[Any]:
    model = PoissonRegressor(
        feature_bounds=(-1, 1),
        target_bounds=(0, 3),
        offset_bounds=(-1, 1),
        weight_bound=1.0,
        epsilon=5.0,
        random_state=EachCall(world.seed),
        **world.facts(),
    )
    given = _given(world, table, "size", exposure=table["score"] + 0.5)
    return _shown(model.fit(matrix(table), **given))


def _pipeline(steps: list[Any], encoded: bool = False, **options: Any) -> Any:
    def door(world: World, table: dict[str, np.ndarray]) -> list[Any]:
        first = [SchemaEncoder(_schema("label"))] if encoded else []
        norm = {} if encoded else {"row_norm": 1.5}
        model = LogisticRegression(
            weight_bound=1.0, **LABELS, **norm, **{"solver": NoisyGD(n_steps=3), **options}
        )
        whole = PrivatePipeline(
            [*first, *steps, model], epsilon=5.0, random_state=EachCall(world.seed), **world.facts()
        )
        X = {name: table[name] for name in COLUMNS} if encoded else matrix(table)
        return _shown(whole.fit(X, **_given(world, table, "label")))

    return door


def _search(method: str) -> Any:
    def door(world: World, table: dict[str, np.ndarray]) -> list[Any]:
        noise = EachCall(world.seed)
        model = LogisticRegression(
            row_norm=1.5, weight_bound=1.0, random_state=noise, **LABELS, **world.facts()
        )
        solvers = {"solver": [NoisyGD(n_steps=2), NoisyGD(n_steps=3)]}
        search = PrivateGridSearchCV(model, solvers, epsilon=5.0, method=method)
        return _shown(search.fit(matrix(table), **_given(world, table, "label")))

    return door


def _schema(target: str) -> dict[str, Any]:
    return {"columns": COLUMNS, "target": TARGETS[target], "provenance": "made up"}


def _additive(make: Any, target: str) -> Any:
    def door(world: World, table: dict[str, np.ndarray]) -> list[Any]:
        model = make(
            _schema(target),
            weight_bound=1.0,
            epsilon=5.0,
            random_state=EachCall(world.seed),
            **world.facts(),
        )
        X = {name: table[name] for name in COLUMNS}
        model.fit(X, **_given(world, table, target))
        known = {"a": [-1.0, 0.1, 1.0], "b": [0.0, 1.0, 0.3], "c": ["p", "rare", "q"]}
        return [*_shown(model), model.predict(known)]

    return door


def _limited(world: World, table: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the size, and the groups, of rows that are counted."""
    given = world.facts() | {"epsilon": 5.0, "delta": 1e-3, "random_state": EachCall(world.seed)}
    if world.grouped:
        given |= {"groups": table["id"], "max_rows_per_group": 4}
    return given


def _described(**options: Any) -> Any:
    def door(world: World, table: dict[str, np.ndarray]) -> list[Any]:
        found = dpglm.describe(table, _schema("label"), **options, **_limited(world, table))
        return [found.to_dict(), found.summary(), found.solution.w, found.privacy_.to_dict()]

    return door


def _moments(**options: Any) -> Any:
    def door(world: World, table: dict[str, np.ndarray]) -> list[Any]:
        found = dpglm.release_moments(
            table, _schema("size"), terms=["a:c"], **options, **_limited(world, table)
        )
        model = found.regress("size ~ a + b + c")
        return [found.values, repr(found), repr(model), found.privacy_.to_dict()]

    return door


def _evaluated(target: str, **options: Any) -> Any:
    def door(world: World, table: dict[str, np.ndarray]) -> list[Any]:
        score = table["score"]
        scores = {
            "label": score,
            "kind": np.column_stack([score, 1.0 - score, 0.0 * score]),
            "size": 3.0 * score,
        }
        more = dict(options)
        if "levels" in more:
            more["by"] = table["c"]
        found = dpglm.evaluate_predictions(
            table[target], scores[target], **more, **_limited(world, table)
        )
        return [found.to_dict(), found.summary(), found.solution.w, found.privacy_.to_dict()]

    return door


class Told:
    """A public model with scores that are a logistic function of the first column."""

    classes_ = np.array(["no", "yes"])

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        p = 1.0 / (1.0 + np.exp(-np.clip(X[:, 0], -1.0, 1.0)))
        return np.column_stack([1.0 - p, p])


def _evaluate(world: World, table: dict[str, np.ndarray]) -> list[Any]:
    found = dpglm.evaluate(Told(), matrix(table), table["label"], **_limited(world, table))
    return [found.to_dict(), found.privacy_.to_dict()]


def _study(model: Any, target: str, effects: Any = None, **options: Any) -> Any:
    def door(world: World, table: dict[str, np.ndarray]) -> list[Any]:
        size: dict[str, Any] = {"n_rows": N}
        if world.grouped:
            size |= {"groups": "id", "n_groups": len(SIZES), "max_rows_per_group": 4}
        study = Study(
            _schema(target), epsilon=8.0, delta=1e-3, adjacency=world.relation.value, **size
        )
        study = study.explore(two_way=[("a", "c")]).fit(model, **options)
        if effects is not None:
            study = study.effects(effects)
        found = study.evaluate(test_share=0.4).run(table, random_state=EachCall(world.seed))
        return [
            found.privacy_.to_dict(),
            *_shown(found.model),
            found.exploration.to_dict(),
            found.evaluation.to_dict(),
            None if effects is None else found.effects.to_dict(),
        ]

    return door


def _effect(world: World, table: dict[str, np.ndarray]) -> list[Any]:
    size = world.facts() | {"epsilon": 8.0, "delta": 1e-3, "random_state": EachCall(world.seed)}
    if world.grouped:
        size |= {"groups": "id", "max_rows_per_group": 4}
    found = dpglm.ate(
        table, treatment="label", outcome="size", adjust=["a", "c"], schema=_arms(), **size
    )
    return [found.to_dict(), found.summary(), found.methods()]


def _arms() -> dict[str, Any]:
    label = {"type": "categorical", "categories": ["no", "yes"]}
    return {**_schema("size"), "columns": {**COLUMNS, "label": label}}


DOORS = {
    **{f"fit, {name}": door for name, door in _solvers()},
    "fit, three classes": _fit(LogisticRegression, "kind", **KINDS),
    "fit, sampled": _fit(
        LogisticRegression, "label", solver=NoisySGD(n_steps=4, sampling_rate=0.4), **LABELS
    ),
    "fit, weights of classes": _fit(
        LogisticRegression, "label", class_weight={"no": 1.0, "yes": 3.0}, **LABELS
    ),
    "fit, inference": _fit(LinearRegression, "size", inference=True, epsilon=500.0, **NUMBERS),
    "fit, robust inference": _fit(
        LogisticRegression, "label", inference="robust", epsilon=500.0, **LABELS
    ),
    "fit, linear": _fit(LinearRegression, "size", **NUMBERS),
    "fit, Poisson": _fit(PoissonRegressor, "size", **NUMBERS),
    "fit, gamma": _fit(GammaRegressor, "amount", target_bounds=(0.1, 3)),
    "fit, shares": _fit(BinomialRegressor, "score"),
    "fit, exposure": _offset,
    "additive classes": _additive(AdditiveClassifier, "label"),
    "moments": _moments(),
    "moments, all rows alike": _moments(weighting="none"),
    "additive numbers": _additive(AdditiveRegressor, "size"),
    "pipeline of a schema": _pipeline([], encoded=True),
    "pipeline, center and scale": _pipeline([Center(), Scale()]),
    "pipeline, center and whiten": _pipeline([Center(), Whiten()]),
    "pipeline, quantile": _pipeline([ClipToQuantile(), Center()], solver="newton"),
    "pipeline, instance-optimal": _pipeline([InstanceOptimalCenter(), RandomProjection(2)]),
    "pipeline of all": _pipeline([Center(), Scale()], encoded=True, solver="auto"),
    "search, held out": _search("held_out"),
    "search, repeated": _search("repeated"),
    "describe": _described(two_way=[("a", "c")], correlations=True),
    "describe by levels": _described(by="c"),
    "evaluate": _evaluate,
    "evaluate scores": _evaluated("label", classes=["no", "yes"], levels=["p", "q"]),
    "evaluate classes": _evaluated("kind", classes=["u", "v", "rare"]),
    "evaluate numbers": _evaluated("size", target_bounds=(0, 3)),
    "effect": _effect,
    "study": _study(None, "label"),
    "study of curves": _study("additive", "size"),
    "study, effects": _study(LinearRegression(inference=True), "size", effects="c"),
}

# Their plans refuse groups, whatever the rows are.
OF_ROWS = (
    *(f"fit, {name}" for name in ("d2p2", "frank_wolfe", "local_sgd", "robust inference")),
    *(f"fit, {name}_perturbation" for name in ("objective", "output")),
    "pipeline, quantile",
    "pipeline, instance-optimal",
    "search, held out",
    "search, repeated",
)
# Their plans refuse a private number of rows.
OF_PUBLIC_NUMBER = ("fit, local_sgd", "search, held out", "search, repeated")


def suited(door: str, world: World) -> World:
    """Return a world that the plans of a door accept, as near as can be."""
    if world.grouped and door in OF_ROWS:
        world = dataclasses.replace(world, grouped=False)
    if world.grouped and door.startswith(("study", "effect")):
        world = dataclasses.replace(world, relation=Adjacency.ADD_REMOVE)
    if not world.relation.n_is_public and door in OF_PUBLIC_NUMBER:
        world = dataclasses.replace(world, relation=Adjacency.ZERO_OUT)
    return world


def main(pairs: int) -> None:
    """Send this many pairs through the doors; print the numbers of docs/audit.md."""
    rng = np.random.default_rng(0)
    questions, worst, refused = 0, 0.0, 0
    for pair in range(pairs):
        door = [*DOORS][pair % len(DOORS)]
        world = World(
            relation=[*Adjacency][rng.integers(3)],
            grouped=bool(rng.integers(2)),
            weighted=bool(rng.integers(2)),
            unit=UNITS[rng.integers(len(UNITS))],
            seed=int(rng.integers(2**16)),
        )
        world = suited(door, world)
        ratio, asked = compared(door, world)
        if ratio > 1.0:
            sys.stdout.write(f"{ratio:.4f} {door}: {world}\n")
        questions, worst, refused = questions + asked, max(worst, ratio), refused + (not asked)
    sys.stdout.write(
        f"{pairs} pairs through {len(DOORS)} doors, {questions} releases, {refused} pairs refused; "
        f"largest move over its declared bound: {worst:.4f}\n"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
