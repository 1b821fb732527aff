"""Study: explore a table, fit a model and evaluate it, on one budget."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from numpy.typing import ArrayLike

from dpglm._calls import checked
from dpglm._codec import line
from dpglm._json import at
from dpglm._validation import check_count, check_integer, check_list, check_one_of
from dpglm.certificate.certificate import check_part
from dpglm.certificate.execution import StudyPart, private_size
from dpglm.data.rows import GroupBound, Protection
from dpglm.data.split import EFFECTS, EVALUATION, EXPLORATION, MODEL, Split, side_of
from dpglm.exploration.describe import DescriptionPart
from dpglm.ledger.ledger import PrivacyLedger, as_ledger
from dpglm.privacy.budget import Adjacency, PrivacyBudget, stated_budget
from dpglm.privacy.noise import NoiseSource, noise_source
from dpglm.privacy.noise.source import warn_of_seed
from dpglm.study.effects import effects_of
from dpglm.study.planning import ModelPart, StudyPlan, evaluation_of, model_of, plan_study
from dpglm.study.running import StudyResult, read_columns, run
from dpglm.tables.schema import Schema


@final
@dataclass(frozen=True)
class Study:
    """Describe a table, fit a model and evaluate it on held-out rows, under one budget.

    Parameters
    ----------
    schema : Schema or mapping
        The public facts about the table, or their JSON form.
    epsilon : float, default=1.0
        Total privacy budget epsilon, above 0.
    delta : float or "auto", default="auto"
        Total privacy budget delta, in (0, 1); "auto" is ``default_delta``.
    budget : PrivacyBudget, optional
        Replaces ``epsilon`` and ``delta``.
    adjacency : {"zero_out", "add_remove", "replace_one"}, default="zero_out"
        Neighbouring relation.
    n_rows : int, optional
        Public number of rows, which may be approximate; required for "add_remove" only.
    title : str, optional
        Title of the study, in one line.
    groups : str, optional
        Column with the person id of each row; it must not be in the schema. All rows of a person
        are then protected together, and are held out together. Requires
        ``adjacency="add_remove"``, ``n_groups`` and ``max_rows_per_group``.
    n_groups : int, optional
        Public number of people, which may be approximate. With ``groups``.
    max_rows_per_group : int, optional
        Maximum rows per person in each part. With ``groups``.
    parts : mapping, default={}
        The declared parts; set by the methods.
    split : Split, optional
        The split of the rows between model and evaluation; set by ``evaluate``.

    Notes
    -----
    ``explore``, ``fit``, ``effects`` and ``evaluate`` declare a part, each at most once, and return
    a new study. ``plan`` states cost and precision before anything is spent; ``run`` executes it.

    Privacy: all rows are described. A random subset is used for the model, and the other rows for
    its evaluation, so each row is charged for the description and for either the model or the
    evaluation. Plans do not depend on rows.

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
    title: str | None = None
    groups: str | None = None
    n_groups: int | None = None
    max_rows_per_group: int | None = None
    parts: Mapping[str, StudyPart] = dataclasses.field(default_factory=dict, kw_only=True)
    split: Split | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.schema, Schema):
            object.__setattr__(self, "schema", Schema.from_dict(self.schema))
        check_one_of("adjacency", self.adjacency, tuple(Adjacency))
        if self.n_rows is not None:
            check_count("n_rows", self.n_rows)
        if self.title is not None:
            with at("title"):
                line(self.title)
        self._check_groups()
        self._protection(1).budget.gdp_mu()

    def _check_groups(self) -> None:
        numbers = {"n_groups": self.n_groups, "max_rows_per_group": self.max_rows_per_group}
        for name, value in numbers.items():
            if (value is None) != (self.groups is None):
                raise ValueError(
                    f"{name} must be given with groups, and only then, got {value!r} and "
                    f"groups={self.groups!r}. Groups require n_groups, max_rows_per_group, n_rows "
                    "and adjacency='add_remove'"
                )
            if value is not None:
                check_integer(name, value, least=1)
        if self.groups is None:
            return
        with at("groups"):
            line(self.groups)
        taken = [one.name for one in self._schema.columns]
        if self._schema.has_target:
            taken.append(self._schema.target.name)
        if self.groups in taken:
            raise ValueError(f"groups must be a column outside the schema, got {self.groups!r}")
        # Under other relations plans need the number of rows of each part, which is random.
        if Adjacency(self.adjacency) is not Adjacency.ADD_REMOVE:
            raise ValueError(
                "groups requires a study with adjacency='add_remove', where the sizes of the "
                f"parts are random, got {self.adjacency!r}"
            )

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
        """Declare a description of all rows: counts, quantiles, means and tables.

        Parameters
        ----------
        columns, two_way, correlations, by, bins, level
            See ``dpglm.describe``.

        Raises
        ------
        ValueError
            If there is a description already, or an argument is invalid.
        """
        both = correlations
        if not isinstance(both, bool):
            both = _pairs("correlations", both)
        pairs = _pairs("two_way", two_way)
        part = DescriptionPart(self._schema, columns, pairs, both, by, bins, level)
        return self._with(EXPLORATION, part)

    def fit(self, estimator: Any = None, *, formula: str | None = None, **settings: Any) -> Study:
        """Declare the model.

        Parameters
        ----------
        estimator : str or estimator, optional
            ``"additive"`` for smooth curves and interactions of the columns; the name of a linear
            model as on the command line (``"ridge"``); or a linear or additive model, or a
            ``PrivatePipeline`` that takes the table. Default: the usual linear model of the target.
            The schema's facts about the target are filled in.
        formula : str, optional
            Model formula, such as ``"income ~ age + C(sex)"``.
        **settings
            Further parameters of the estimator, such as ``inference=True`` or
            ``interactions=[("age", "sex")]``.

        Raises
        ------
        ValueError
            If there is a model already, or it cannot predict the target of the schema.
        """
        if not self._schema.has_target:
            raise ValueError("schema must have a target to fit a model, got none")
        model = model_of(self._schema, estimator, formula, settings)
        return self._with(MODEL, ModelPart(model, self._schema))

    def evaluate(
        self,
        *,
        test_share: float = 0.2,
        persons: str | None = None,
        thresholds: Sequence[float] | None = None,
        by: str | None = None,
        level: float = 0.95,
    ) -> Study:
        """Declare the evaluation of the model on held-out rows.

        Parameters
        ----------
        test_share : float, default=0.2
            Share of the rows that is held out, in (0, 1).
        persons : str, optional
            Column with the person id of each row. All rows of a person are then held out together,
            so that the model is evaluated on new people. Requires ``adjacency="add_remove"``. The
            protected unit remains the row. A study with ``groups`` always holds out whole people.
        thresholds : sequence of float, optional
            Decision thresholds of interest, for two classes. Default: 0.5 for probabilities, 0 for
            decision values.
        by : str, optional
            Categorical column with subgroups to evaluate as well, at no further cost.
        level : float, default=0.95
            Confidence level of intervals, in (0, 1).

        Raises
        ------
        ValueError
            If there is an evaluation already, or no model yet, or an argument is invalid.
        """
        fitted = self.parts.get(MODEL)
        if not isinstance(fitted, ModelPart):
            raise ValueError("a study must fit a model to evaluate it: call fit before evaluate")
        if self.groups is not None:
            if persons not in (None, self.groups):
                raise ValueError(
                    f"persons must be None, or the study's groups {self.groups!r}, got {persons!r}"
                )
            persons = self.groups
        split = Split(test_share, persons)
        split.check(Adjacency(self.adjacency))
        given = None if thresholds is None else check_list("thresholds", thresholds)
        return self._with(EVALUATION, evaluation_of(fitted, given, by, level), split=split)

    def effects(
        self, column: str, values: Sequence[Any] | None = None, *, level: float = 0.95
    ) -> Study:
        """Declare standardised means: mean predictions over all rows with one column set.

        Parameters
        ----------
        column : str
            A column of the model.
        values : sequence, optional
            Values to which the column is set, the reference first; by default all categories. Each
            costs budget.
        level : float, default=0.95
            Confidence level of intervals, in (0, 1).

        Returns
        -------
        Study
            ``result.effects`` has ``predictions``, ``differences`` (risk differences) and
            ``ratios`` (risk ratios).

        Raises
        ------
        ValueError
            If there are effects already, no model with ``inference`` yet, or an argument is
            invalid.

        Notes
        -----
        Privacy: a further Gaussian release over all rows, which shares the budget of the
        description.
        """
        fitted = self.parts.get(MODEL)
        if not isinstance(fitted, ModelPart):
            raise ValueError("a study must fit a model to average it: call fit before effects")
        return self._with(EFFECTS, effects_of(fitted, column, values, level))

    @checked
    def add(self, name: str, part: StudyPart) -> Study:
        """Declare another part, which uses all rows, as the description does.

        Parameters
        ----------
        name : str
            Name of its result, of lower-case letters and ``_``.
        part : StudyPart
            The part (``dpglm.certificate.execution.StudyPart``).

        Returns
        -------
        Study
            The study with the part; ``result.results[name]`` is its result.

        Raises
        ------
        ValueError
            If the name is invalid or taken.

        Notes
        -----
        Privacy: its releases compose with those of all other parts. Parts over all rows share
        the budget of the description, in proportion to the roots of ``noise_to_sampling``.
        """
        check_part(name)
        if side_of(name) is not None or name in (EXPLORATION, EFFECTS, "study"):
            raise ValueError(f"name must be that of a new part, got {name!r}")
        return self._with(name, part)

    def __repr__(self) -> str:
        title = "" if self.title is None else f"{self.title!r}: "
        allowed = self.budget or f"epsilon={self.epsilon!r}, delta={self.delta!r}"
        parts = ", ".join(self.parts) or "nothing declared yet"
        return f"<Study of {title}{parts}; {allowed}>"

    def _with(self, name: str, part: StudyPart, **changes: Any) -> Study:
        if name in self.parts:
            raise ValueError(f"the {name} of a study can be declared once only")
        return dataclasses.replace(self, parts={**self.parts, name: part}, **changes)

    @property
    def _schema(self) -> Schema:
        assert isinstance(self.schema, Schema)
        return self.schema

    def _protection(self, n_rows: int) -> Protection:
        bound = None
        if self.n_groups is not None and self.max_rows_per_group is not None:
            bound = GroupBound(self.n_groups, float(self.max_rows_per_group))
        n_units = n_rows if bound is None else bound.n_groups
        budget = stated_budget(self.epsilon, self.delta, self.budget, n_units)
        return Protection(Adjacency(self.adjacency), budget, n_rows, bound)

    def plan(self, n_rows: int | None = None) -> StudyPlan:
        """Decide every setting from public facts, before anything is spent.

        Parameters
        ----------
        n_rows : int, optional
            Public number of rows; by default the study's.

        Returns
        -------
        StudyPlan
            Cost and expected precision of each part, to be printed.

        Raises
        ------
        ValueError
            If nothing was declared, the number of rows is missing, or the budget does not allow
            Gaussian noise.
        """
        given = self.n_rows if n_rows is None else n_rows
        if given is None and not Adjacency(self.adjacency).n_is_public:
            raise private_size("n_rows", self.adjacency)
        total = check_count("n_rows", given)
        if self.n_rows not in (None, total):
            raise ValueError(f"n_rows must be that of the study, {self.n_rows}, got {total!r}")
        if not self.parts:
            raise ValueError("a study must explore or fit, got neither: declare a part first")
        return plan_study(
            self.title, self._schema, self.parts, self.split, self._protection(total), self.groups
        )

    @checked
    def run(
        self,
        table: Any,
        *,
        where: ArrayLike | None = None,
        ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: int | NoiseSource | None = None,
    ) -> StudyResult:
        """Execute the plan, or raise and return nothing.

        Parameters
        ----------
        table : mapping, data frame or path-like
            Columns by name (a dict of arrays, pandas, polars), or a CSV or Parquet file: the
            columns of the schema, with the target.
        where : array_like of bool of shape (n,), optional
            Rows to use in every part, selected by a private condition; their number stays private.
        ledger : PrivacyLedger or path-like, optional
            Ledger of the data set. The study is one entry, made before the first release.
        checkpoint : path-like, optional
            Folder for the split and the released values. If the process is killed, the same call
            resumes there at no further cost; once complete, it returns the same results. Do not
            publish it: it contains the rows that were held out.
        random_state : int or NoiseSource, optional
            An integer makes the study reproducible and NOT private.

        Raises
        ------
        ValueError
            If the table does not match the schema or a parameter is invalid; nothing has been
            released or spent.
        PlanMismatchError
            If the checkpoint belongs to another study or another table.
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
