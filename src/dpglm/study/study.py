"""Study: look at a table, learn a model and evaluate it, all declared beforehand, on one budget."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from numpy.typing import ArrayLike

from dpglm._codec import line
from dpglm._json import at
from dpglm._validation import check_count, check_list, check_one_of
from dpglm.ledger.ledger import PrivacyLedger, as_ledger
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import GaussianDP, PrivacyBudget, stated_budget
from dpglm.privacy.noise import NoiseSource, noise_source
from dpglm.privacy.noise.source import warn_of_seed
from dpglm.study.division import Persons, Purpose, Split
from dpglm.study.parts import (
    EVALUATION,
    EXPLORATION,
    MODEL,
    DeclaredPart,
    Evaluating,
    Exploration,
    Learning,
)
from dpglm.study.planning import StudyPlan, plan_study
from dpglm.study.running import StudyResult, read_columns, run
from dpglm.tables.schema import Schema

__all__ = ["Study"]


@final
@dataclass(frozen=True)
class Study:
    """Look at a table, learn a model and evaluate it on rows held out, under one budget.

    Parameters
    ----------
    schema : Schema or mapping
        The public facts about the table, or their JSON form.
    epsilon : float, default=1.0
        Privacy budget epsilon of everything together, above 0.
    delta : float or "auto", default="auto"
        Privacy budget delta, in (0, 1); "auto" as for estimators.
    budget : PrivacyBudget, optional
        Replaces ``epsilon`` and ``delta``.
    adjacency : {"zero_out", "add_remove", "replace_one"}, default="zero_out"
        Neighbouring relation.
    n_rows : int, optional
        Public number of rows; needed where the relation keeps it private.
    purpose : {"model", "evaluation", "exploration", "balanced"}, default="model"
        What is to be as precise as the budget allows; see ``Purpose``.
    title : str, optional
        What the study is called, in one line.
    groups : str, optional
        Column of the table that says whose each row is, and is not in the schema: all rows of a
        person are then protected together, in every part, and all are held out, or none. Needs
        ``adjacency="add_remove"``, ``n_groups`` and ``max_rows_per_group``.
    n_groups : int, optional
        Public number of persons; a rough one will do. With ``groups``.
    max_rows_per_group : int, optional
        How many rows of a person are used at most in each part, as of an estimator. With
        ``groups``.
    parts : mapping, default={}
        What has been declared so far: set by the methods.
    split : Split, optional
        How rows are divided between learning and evaluating: set by ``evaluate``.

    Notes
    -----
    ``explore``, ``fit`` and ``evaluate`` say what is to be done, each at most once; each returns
    a new study. ``plan`` says what to expect before anything is spent, and ``run`` does exactly
    that.

    Privacy: all rows are explored; the model is learned from some, drawn at random, and evaluated
    on the others, so that a row pays for the exploration and for one of the two. Nothing that is
    planned depends on rows.

    Examples
    --------
    >>> from dpglm.datasets import load_adult
    >>> adult = load_adult()
    >>> study = Study(adult.schema, epsilon=1.0, delta=1e-5).fit().evaluate()
    >>> plan = study.plan(48842)
    >>> round(plan.epsilon, 6), plan.rows_of("model"), plan.rows_of("evaluation")
    (1.0, 39074, 9768)
    >>> result = study.run({**adult.data, "income": adult.target})
    >>> result.verify().ok, bool(0.87 < result.evaluation.auc < 0.93)
    (True, True)
    """

    schema: Schema | Mapping[str, Any]
    epsilon: float = 1.0
    delta: float | Literal["auto"] = "auto"
    budget: PrivacyBudget | None = None
    adjacency: str = "zero_out"
    n_rows: int | None = None
    purpose: str = "model"
    title: str | None = None
    groups: str | None = None
    n_groups: int | None = None
    max_rows_per_group: int | None = None
    parts: Mapping[str, DeclaredPart] = dataclasses.field(default_factory=dict, kw_only=True)
    split: Split | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.schema, Schema):
            object.__setattr__(self, "schema", Schema.from_dict(self.schema))
        check_one_of("adjacency", self.adjacency, tuple(Adjacency))
        check_one_of("purpose", self.purpose, tuple(Purpose))
        if self.n_rows is not None:
            check_count("n_rows", self.n_rows)
        if self.title is not None:
            with at("title"):
                line(self.title)
        self._check_groups()
        self._budget(1).gdp_mu()

    def _check_groups(self) -> None:
        numbers = {"n_groups": self.n_groups, "max_rows_per_group": self.max_rows_per_group}
        for name, value in numbers.items():
            if (value is None) != (self.groups is None):
                raise ValueError(
                    f"{name} must be given with groups, and only then, got {value!r} and "
                    f"groups={self.groups!r}"
                )
        if self.groups is None:
            return
        with at("groups"):
            line(self.groups)
        taken = [one.name for one in self._schema.columns]
        if self._schema.has_target:
            taken.append(self._schema.target.name)
        if self.groups in taken:
            raise ValueError(f"groups must be a column that the schema lacks, got {self.groups!r}")
        # Elsewhere plans must know how many rows each part has, which chance decides.
        if Adjacency(self.adjacency) is not Adjacency.ADD_REMOVE:
            raise ValueError(
                "groups needs a study with adjacency='add_remove', which leaves the sizes of the "
                f"parts to chance; got {self.adjacency!r}"
            )
        _ = self._persons  # which checks the numbers

    @property
    def _persons(self) -> Persons | None:
        if self.groups is None or self.n_groups is None or self.max_rows_per_group is None:
            return None
        return Persons(self.groups, self.n_groups, self.max_rows_per_group)

    def explore(
        self,
        columns: Sequence[str] | None = None,
        *,
        two_way: Iterable[Sequence[str]] = (),
        correlations: Iterable[Sequence[str]] | bool = (),
        by: str | None = None,
        bins: Mapping[str, Any] | None = None,
        level: float = 0.95,
    ) -> Study:
        """Declare what is looked at: counts, quantiles, means and tables of all rows.

        Parameters
        ----------
        columns, two_way, correlations, by, bins, level
            As for ``dpglm.exploration.describe``.

        Returns
        -------
        Study

        Raises
        ------
        ValueError
            If an exploration was declared before, or an argument is wrong.
        """
        options = {
            "columns": columns,
            "two_way": _pairs("two_way", two_way),
            "correlations": (
                correlations
                if isinstance(correlations, bool)
                else _pairs("correlations", correlations)
            ),
            "by": by,
            "bins": bins,
            "level": level,
        }
        exploration = Exploration(options)
        # What is wrong is found out here, and not when there are rows.
        exploration.plan_within(self._schema, Adjacency(self.adjacency), 1000, GaussianDP(1.0))
        return self._with(EXPLORATION, exploration)

    def fit(self, estimator: Any = None, *, formula: str | None = None, **settings: Any) -> Study:
        """Declare the model that is learned.

        Parameters
        ----------
        estimator : str or estimator, optional
            ``"additive"``, for curves of columns and their interactions; the name of a linear model
            as on the command line (``"ridge"``); or a model itself: linear, additive, or a
            ``PrivatePipeline`` that takes the table. By default the usual linear model of the
            target. What the schema says of the target need not be said again.
        formula : str, optional
            How columns become features, such as ``"income ~ age + C(sex)"``.
        **settings
            Further parameters of the estimator, such as ``inference=True`` or
            ``interactions=[("age", "sex")]``.

        Returns
        -------
        Study

        Raises
        ------
        ValueError
            If there is a model already, or it cannot predict the target of the schema.
        """
        if not self._schema.has_target:
            raise ValueError("schema must have a target for a model to be fitted, got none")
        learning = Learning(estimator, formula, settings)
        learning.model(self._schema, Adjacency(self.adjacency))
        return self._with(MODEL, learning)

    def evaluate(
        self,
        *,
        test_share: float | None = None,
        persons: str | None = None,
        thresholds: Sequence[float] | None = None,
        by: str | None = None,
        level: float = 0.95,
    ) -> Study:
        """Declare that the model is evaluated on rows that it has not learned from.

        Parameters
        ----------
        test_share : float, optional
            Share of the rows that is held out, in (0, 1); by default what the study's purpose says:
            a half for "evaluation", a fifth for others.
        persons : str, optional
            Column of the table that says whose each row is: all rows of a person are held out, or
            none, so that the model is evaluated on new persons. Needs ``adjacency="add_remove"``,
            as the sizes of the parts are left to chance. What is protected is a row all the same,
            unless the study has ``groups``: these are held out so by themselves.
        thresholds : sequence of float, optional
            Of two classes: scores at which decisions are of interest; by default 0.5 for
            probabilities, and 0 for decision values.
        by : str, optional
            Column of categories by whose levels rows are evaluated as well, at no further cost.
        level : float, default=0.95
            Level of intervals, in (0, 1).

        Returns
        -------
        Study

        Raises
        ------
        ValueError
            If there is an evaluation already, or no model yet, or an argument is wrong.
        """
        learning = self.parts.get(MODEL)
        if not isinstance(learning, Learning):
            raise ValueError("a study must fit a model to evaluate it: declare fit before evaluate")
        if self.groups is not None:
            if persons not in (None, self.groups):
                raise ValueError(
                    f"persons must be None, or the study's groups {self.groups!r}, got {persons!r}"
                )
            persons = self.groups
        share = Purpose(self.purpose).test_share if test_share is None else test_share
        split = Split(share, persons)
        split.check(Adjacency(self.adjacency))
        given = None if thresholds is None else check_list("thresholds", thresholds)
        evaluating = Evaluating(learning, given, by, level)
        evaluating.plan_within(self._schema, Adjacency(self.adjacency), 1000, GaussianDP(1.0))
        return self._with(EVALUATION, evaluating, split=split)

    def __repr__(self) -> str:
        title = "" if self.title is None else f"{self.title!r}: "
        allowed = self.budget or f"epsilon={self.epsilon!r}, delta={self.delta!r}"
        parts = ", ".join(self.parts) or "nothing declared yet"
        return f"<Study of {title}{parts}; {allowed}>"

    def _with(self, name: str, part: DeclaredPart, **changes: Any) -> Study:
        if name in self.parts:
            raise ValueError(f"a study has each part once, and the {name} was declared before")
        return dataclasses.replace(self, parts={**self.parts, name: part}, **changes)

    @property
    def _schema(self) -> Schema:
        assert isinstance(self.schema, Schema)
        return self.schema

    def _budget(self, n_units: int) -> PrivacyBudget:
        return stated_budget(self.epsilon, self.delta, self.budget, n_units)

    def plan(self, n_rows: int | None = None) -> StudyPlan:
        """Decide every setting from public facts, before anything is spent.

        Parameters
        ----------
        n_rows : int, optional
            Public number of rows; by default that of the study.

        Returns
        -------
        StudyPlan
            To be printed: what each part costs, and how precise it will be.

        Raises
        ------
        ValueError
            If nothing was declared, the number of rows is not known, or the budget does not allow
            Gaussian noise.
        """
        total = check_count("n_rows", self.n_rows if n_rows is None else n_rows)
        if self.n_rows not in (None, total):
            raise ValueError(f"n_rows must be that of the study, {self.n_rows}, got {total!r}")
        if not self.parts:
            raise ValueError("a study must explore, fit, or both, got neither: declare it first")
        return plan_study(
            self.title,
            self._schema,
            self.parts,
            self.split,
            total,
            self._budget(total if self.n_groups is None else self.n_groups),
            Adjacency(self.adjacency),
            Purpose(self.purpose),
            self._persons,
        )

    def run(
        self,
        table: Any,
        *,
        where: ArrayLike | None = None,
        ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: int | NoiseSource | None = None,
    ) -> StudyResult:
        """Do what was declared, as ``plan`` says, or raise and return nothing.

        Parameters
        ----------
        table : mapping, data frame or path-like
            Columns by name (a dict of arrays, pandas, polars), or a CSV or Parquet file: those of
            the schema, with the target.
        where : array_like of bool of shape (n,), optional
            Which rows count in every part, by a private condition; how many do stays private.
        ledger : PrivacyLedger or path-like, optional
            Ledger of the data set, in which the whole study is one entry, before anything is
            released.
        checkpoint : path-like, optional
            Folder that keeps how the rows were divided and what was released so far. If the
            process is killed, the same call goes on from there and spends nothing twice; once
            complete, it returns the same results. It is for the holder of the rows, and not for
            publication: it says which rows were held out.
        random_state : int or NoiseSource, optional
            As for estimators: an integer makes the study reproducible and NOT private.

        Returns
        -------
        StudyResult

        Raises
        ------
        ValueError
            If the table does not match the schema or a parameter is invalid; nothing has been
            released or spent.
        PlanMismatchError
            If the checkpoint is of another study or another table.
        LedgerError
            If the ledger refuses; nothing has been released or spent.
        """
        warn_of_seed(random_state)
        noise, account = noise_source(random_state), as_ledger(ledger)
        persons = self.groups if self.split is None else self.split.persons
        columns, chosen = read_columns(table, self._schema, persons, where)
        n_rows = len(next(iter(columns.values())))
        plan = self.plan(n_rows if Adjacency(self.adjacency).n_is_public else None)
        return run(plan, columns, noise, account, checkpoint, chosen)


def _pairs(name: str, value: Any) -> tuple[tuple[Any, ...], ...]:
    return tuple(check_list(name, one) for one in check_list(name, value))
