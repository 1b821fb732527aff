"""Base of all private estimators: budget, neighbouring relation, noise and public parameters."""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import os
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, final

import numpy as np
from sklearn.utils import Tags

from dpglm._calls import frames_to_the_user, is_watched
from dpglm._validation import check_count, check_real
from dpglm._words import rounded_up
from dpglm.certificate.certificate import PublicFact
from dpglm.data.collection import Collection
from dpglm.data.compiled.kernels import COMPILED
from dpglm.data.rows import SMALLEST, GroupBound
from dpglm.estimators._parameters import Declared
from dpglm.exceptions import (
    EqualBoundsWarning,
    LowSignalWarning,
    PublicInformationWarning,
    SlowSumsWarning,
    UnpaidReleaseWarning,
)
from dpglm.guidance import HOPELESS, guidance
from dpglm.ledger.ledger import PrivacyLedger, as_ledger
from dpglm.privacy.accounting.calibrate import spent
from dpglm.privacy.budget import Adjacency, PrivacyBudget, Unit, stated_budget
from dpglm.privacy.events import Composed, canonical
from dpglm.privacy.noise import NoiseSource, SeededNoise, noise_source
from dpglm.privacy.noise.source import warn_of_seed
from dpglm.solvers.auto import signal_to_noise
from dpglm.solvers.base import Plan, StepInfo
from dpglm.solvers.checkpoint import CheckpointFile
from dpglm.solvers.uncertainty import Solution
from dpglm.tables.cells import column_in_words
from dpglm.tables.encoding import (
    ColumnScaling,
    FeatureBounds,
    check_feature_bounds,
    read_feature_bounds,
    warn_of_equal_bounds,
)

if TYPE_CHECKING:
    from dpglm.inference.inference import Inference

# Records of the fits in this process, for warnings where their privacy costs add up.

# The second fit warns of the cost of this many fits, as searches and validations rarely have fewer.
_MANY = 10
# Plans of fits without a ledger by the rows that they read; None once a warning was given.
_FITS: OrderedDict[bytes, list[Plan] | None] = OrderedDict()
_MOST_MARKS = 256


@final
@dataclass(eq=False)
class Family:
    """Fits without a ledger by an estimator and its copies, and marks of the rows that they read.

    ``sklearn.base.clone`` and ``copy.deepcopy`` keep the family, so that ``cross_val_score``,
    ``GridSearchCV`` and refits of one object form one family. Fits of the same rows by other
    estimators add up as well. Unpickled estimators share the family of the worker process.

    Privacy: a record in the memory of one process that is never released, saved or sent. Warnings
    depend on the rows only through whether the caller fitted the same ones, a fact known to
    the caller.
    """

    _plans: list[Plan] = field(default_factory=list, init=False)
    _marks: set[bytes] = field(default_factory=set, init=False)
    _said: set[str] = field(default_factory=set, init=False)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> Any:
        # Always the same bytes, as caches compare them.
        return _arrived, ()

    def fits(self, plan: Plan, mark: bytes | None) -> None:
        """Record a fit without a ledger before it happens; warn of the second one."""
        of_rows = [] if mark is None else _FITS.get(mark, [])
        if of_rows is None:
            return
        warned = "fits" in self._said
        # By identity, as equal plans are different fits.
        earlier = {id(one): one for one in (*self._plans, *of_rows)}.values()
        # Costs of plans can be added up in the budget of one if they protect alike.
        protects = (plan.adjacency, plan.data.unit, type(plan.budget))
        alike = [
            one for one in earlier if (one.adjacency, one.data.unit, type(one.budget)) == protects
        ]
        if alike and not warned:
            self._warn("fits", _of_fits([*alike, plan]))
        # Records stay bounded in a simulation with any number of fits.
        if not warned:
            self._plans.append(plan)
        if mark is not None:
            _FITS[mark] = None if alike and not warned else [*of_rows, plan][:2]
            _FITS.move_to_end(mark)
            if len(_FITS) > _MOST_MARKS:
                _FITS.popitem(last=False)

    def reads(self, mark: bytes | None) -> None:
        """Record the rows of a fit."""
        if mark is not None:
            self._marks.add(mark)

    def scores(self, rows: Collection) -> None:
        """Warn if rows that are about to be scored are those of a fit."""
        if self._marks and rows.mark() in self._marks:
            self._warn("scores", _of_scores(self._plans, more="fits" in self._said))

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._said:
            warnings.warn(message, UnpaidReleaseWarning, stacklevel=frames_to_the_user())
            # After the warning: where it is an error, the next call raises it again.
            self._said.add(kind)


_ARRIVED = Family()


def _arrived() -> Family:
    return _ARRIVED


def _of_fits(plans: list[Plan]) -> str:
    latest = plans[-1]
    many = [*plans, *[latest] * (_MANY - len(plans))]
    protected = "Each protects one group (person)."
    if latest.data.unit is not Unit.GROUP:
        # scikit-learn keeps groups from a fit unless they are routed.
        protected = (
            "Each protects one row: groups= of cross_validate or GridSearchCV reaches a fit only "
            "with enable_metadata_routing and set_fit_request(groups=True)."
        )
    return (
        f"{len(plans)} fits without a ledger were made in this process by one estimator and its "
        f"copies, or of the same rows. {protected} If they read the same "
        "rows, as in cross_val_score, GridSearchCV, ensembles and refits, they cost together "
        f"{_total(plans)} so far, and {_total(many)} after {_MANY} fits, not {_total([latest])}. "
        "Scores of private rows cost more on top. Give every fit the same ledger=, or use "
        "PrivateGridSearchCV and dpglm.evaluate, which keep to one budget."
    )


def _of_scores(plans: list[Plan], *, more: bool) -> str:
    least = "at least " * more
    cost = f", which cost {least}{_total(plans)} so far" if plans else ""
    return (
        "The model is scored on rows that it, or a copy of it, was fitted on. The score is "
        f"exact, so publishing it reveals more about these rows than the fits do{cost}. No "
        "ledger can account for it. Score public rows, or private ones by dpglm.evaluate within a "
        "budget."
    )


def _total(plans: list[Plan]) -> str:
    """Return the cost of plans together in words: exact if Gaussian, else an upper bound."""
    events = tuple(one.event for one in plans)
    # In the units of the budget with the largest delta.
    budget = max((one.budget for one in plans), key=lambda one: vars(one).get("delta", 0.0))
    try:
        cost = spent(canonical(Composed(events)), plans[-1].adjacency, budget)
    except ValueError:
        # Basic composition bounds the cost where no accountant applies in time.
        each = [one.privacy() for one in plans]
        cost = {name: sum(one[name] for one in each) for name in ("epsilon", "delta")}
    return ", ".join(
        f"{name}={rounded_up(value)}" for name, value in cost.items() if isinstance(value, float)
    )


# In standard deviations; pure noise exceeds it in one of 700 fits.
_LEAST_SIGNAL = 3.0


@dataclass
class PublicFacts:
    """Facts that a fit treats as public, each with its provenance."""

    facts: list[PublicFact] = field(default_factory=list)

    def declared(self, name: str, value: Any) -> None:
        """Record a fact that the caller declared."""
        self.facts.append(PublicFact(name, value, "declared"))

    def from_data(self, name: str, value: Any, remedy: str) -> None:
        """Record a fact that was computed from private rows, and warn."""
        self.facts.append(PublicFact(name, value, "from the data"))
        warnings.warn(
            f"{name} was taken from the private data and is treated as public; the privacy "
            f"guarantee does not cover it. {remedy}",
            PublicInformationWarning,
            stacklevel=frames_to_the_user(),
        )


class BudgetParameters(Declared):
    """The privacy budget, and the ledger that accounts for it.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget epsilon, above 0.
    delta : float or "auto", default="auto"
        Privacy budget delta, in (0, 1). "auto" is the largest power of ten that is at most
        ``1 / (10 n)``, and at most 1e-5 (``dpglm.privacy.default_delta``).
    ledger : PrivacyLedger or path-like, optional
        Ledger of the data set. Every fit is charged to it before anything is released; a fit that
        would exceed the ledger's budget is refused.
    """

    epsilon: float = 1.0
    delta: float | Literal["auto"] = "auto"
    ledger: PrivacyLedger | str | os.PathLike[str] | None = None

    if TYPE_CHECKING:  # Other annotated attributes are parameters.
        _family: Family = field(init=False)

    def __new__(cls, *args: Any, **parameters: Any) -> Self:
        made = super().__new__(cls)
        made._family = Family()
        return made

    def __sklearn_clone__(self) -> Self:
        made = super().__sklearn_clone__()
        made._family = self._family
        return made


class PrivateFit(BudgetParameters, own_first=False):
    """Budget, neighbouring relation and randomness of one fit.

    Parameters
    ----------
    budget : PrivacyBudget, optional
        Replaces ``epsilon`` and ``delta``: ``ApproximateDP``, ``GaussianDP`` or
        ``ZeroConcentratedDP``.
    adjacency : {"zero_out", "add_remove", "replace_one"}, default="zero_out"
        Neighbouring relation, see ``dpglm.privacy.Adjacency``.
    n_rows : int, optional
        Public number of rows; an approximate figure is enough. Declare it if the true number is
        private: for "add_remove", and with ``groups`` for "replace_one". A fit without it uses the
        true number, with a warning.
    n_groups : int, optional
        Public number of groups, for ``plan`` and ``fit`` with ``groups``; like ``n_rows``.
    max_rows_per_group : int, optional
        Maximum number of rows used per group; larger groups are subsampled at random in each fit.
        Default: all rows.
    random_state : int or NoiseSource, optional
        None: noise from the operating system. ``OpenDPNoise()``: Gaussian noise from OpenDP. An
        integer makes the fit reproducible and NOT private, which ``privacy_`` states.
    """

    budget: PrivacyBudget | None = None
    adjacency: str = "zero_out"
    n_rows: int | None = None
    n_groups: int | None = None
    max_rows_per_group: int | None = None
    random_state: int | NoiseSource | None = None
    _takes_sparse = False

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = not isinstance(self.random_state, numbers.Integral)
        tags.input_tags.sparse |= self._takes_sparse
        return tags

    def _budget(self, n_units: int) -> PrivacyBudget:
        return stated_budget(self.epsilon, self.delta, self.budget, n_units)

    def _record(
        self, plan: Plan, rows: Collection, checkpoint: CheckpointFile | None = None
    ) -> None:
        """Record the planned releases; warn of seeded noise and of fits without a ledger."""
        if isinstance(self.random_state, SeededNoise):
            return
        warn_of_seed(self.random_state)
        mark = rows.mark()
        self._family.reads(mark)
        resumes = checkpoint is not None and os.path.exists(checkpoint.path)
        if self.ledger is None and not resumes:
            self._family.fits(plan, mark)


OF_THE_FIT = tuple(one.name for one in dataclasses.fields(PrivateFit))
"""Parameters of the budget, the relation, the number of rows and the randomness."""


class PrivateEstimator(PrivateFit, own_first=False):
    """Budget and public parameters of rows.

    Parameters
    ----------
    row_norm : float, optional
        Public bound on the L2 norm of a row after ``feature_bounds`` are applied, above 0. Rows
        are clipped to it. Default: the square root of the number of features if
        ``feature_bounds`` are given; else the largest norm in the data, with a warning.
    feature_bounds : mapping, pair of float or array_like, or sequence of pairs, optional
        Public lower and upper bounds of the columns: ``{"age": (18, 90), "pay": (0, 1e5)}`` by
        name (or by number from 0, for a matrix), ``(low, high)`` for all columns or as two
        arrays, or one pair ``(low, high)`` for each column. Values are clipped to them in ``fit``
        and ``predict``, and columns mapped to [-1, 1] (sparse ones scaled, not shifted); penalties
        act on the coefficients of the mapped columns.

    Attributes
    ----------
    feature_bounds_ : ndarray of shape (2, n_features) or None
        Lower and upper bounds of the columns in use.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the columns, where X had any.
    privacy_ : dpglm.certificate.Certificate
        The privacy guarantee, its releases, and the public parameters that it rests on.
    solution_ : dpglm.solvers.Solution
        The plan that was executed, with public diagnostics of each step.
    """

    row_norm: float | None = None
    feature_bounds: FeatureBounds | None = None

    def _public_number(
        self, name: str, true: int, facts: PublicFacts, *, is_exact: bool = True
    ) -> int:
        """Return the declared number of rows or groups, else the true one, if it is public.

        That of the rows in groups may be approximate (not ``is_exact``).
        """
        adjacency, given = Adjacency(self.adjacency), getattr(self, name)
        is_public = adjacency.n_is_public if is_exact else adjacency.rows_are_public(Unit.GROUP)
        if given is not None and is_exact and is_public and given != true:
            raise ValueError(
                f"{name} must be the number of {name[2:]}, {true}, or None, got {given!r}"
            )
        if given is not None:
            declared = check_count(name, given)
            facts.declared(name, declared)
            return declared
        if is_public:
            facts.facts.append(PublicFact(name, true, "by relation"))
        else:
            facts.from_data(name, true, f"Give {name}= a public, approximate number.")
        return true

    def _public_groups(
        self, n_rows: int, n_groups: int, facts: PublicFacts
    ) -> tuple[int, GroupBound]:
        """Return the public number of rows in groups, and the bound on a group's rows."""
        n_rows = self._public_number("n_rows", n_rows, facts, is_exact=False)
        n_groups = self._public_number("n_groups", n_groups, facts)
        if self.max_rows_per_group is not None:
            facts.declared("max_rows_per_group", self._max_rows_per_group())
        return n_rows, GroupBound.typical(n_rows, n_groups, self._max_rows_per_group())

    def _max_rows_per_group(self) -> int | None:
        if self.max_rows_per_group is None:
            return None
        return check_count("max_rows_per_group", self.max_rows_per_group)

    def _planned_groups(self, n_rows: int) -> GroupBound | None:
        """Return the bound on groups in a plan; None for rows without groups."""
        if self.n_groups is None:
            if self.max_rows_per_group is not None:
                raise ValueError("n_groups must be given with max_rows_per_group, got None")
            return None
        n_groups = check_count("n_groups", self.n_groups)
        return GroupBound.typical(n_rows, n_groups, self._max_rows_per_group())

    def _in_groups(self, rows: Collection, groups: Any, noise: NoiseSource) -> Collection:
        """Put rows into the given groups, at most ``max_rows_per_group`` of each."""
        own = rows.group_ids
        if own is not None and groups is not None:
            raise ValueError(f"groups must be None for {type(rows).__name__} with its own groups")
        groups = own if groups is None else groups
        if groups is not None:
            return rows.in_groups(groups, self._max_rows_per_group(), noise)
        for name in ("n_groups", "max_rows_per_group"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"groups must be given with {name}={getattr(self, name)!r}, got None"
                )
        return rows

    def _declared_row_norm(self, n_features: int) -> float | None:
        """Return the row-norm bound that the parameters imply, if any."""
        if self.row_norm is not None:
            return check_real("row_norm", self.row_norm, above=0.0)
        return None if self.feature_bounds is None else math.sqrt(n_features)

    def _planned_row_norm(self, n_rows: int, n_features: int) -> float:
        """Check the parameters of a plan without data; return the row-norm bound."""
        noise_source(self.random_state), as_ledger(self.ledger)
        check_count("n_rows", n_rows)
        check_count("n_features", n_features)
        if self.n_rows is not None and self.n_groups is None:
            self._public_number("n_rows", n_rows, PublicFacts())
        row_norm = self._declared_row_norm(n_features)
        if row_norm is None:
            raise ValueError("row_norm or feature_bounds must be given for a plan, got neither")
        if self.feature_bounds is not None:
            check_feature_bounds(self.feature_bounds, n_features)
        return row_norm

    def _row_facts(
        self, rows: Collection, facts: PublicFacts
    ) -> tuple[int, GroupBound | None, float, ColumnScaling | None]:
        """Return the public number of rows, their groups, the row-norm bound, and the scaling."""
        (n_rows, n_features), groups = rows.shape, None
        if rows.n_groups is None:
            n_rows = self._public_number("n_rows", n_rows, facts)
        else:
            n_rows, groups = self._public_groups(n_rows, rows.n_groups, facts)
        names, scaling = getattr(self, "feature_names_in_", None), None
        if self.feature_bounds is not None:
            scaling = read_feature_bounds(self.feature_bounds, n_features, names)
        row_norm = self._declared_row_norm(n_features)
        if row_norm is None:
            largest = rows.longest_row()
            row_norm = largest if largest >= SMALLEST else 1.0
            remedy = "Give row_norm= or feature_bounds= from public knowledge."
            facts.from_data("row_norm", row_norm, remedy)
        elif self.row_norm is not None:
            facts.declared("row_norm", row_norm)
        if scaling is not None:
            without_zero = np.flatnonzero((scaling.low > 0.0) | (scaling.high < 0.0))
            if rows.is_sparse and len(without_zero):
                first = int(without_zero[0])
                raise ValueError(
                    "feature_bounds must contain 0 in every column of a sparse X, as entries that "
                    f"are not stored are zeros, got {float(scaling.low[first])!r} to "
                    f"{float(scaling.high[first])!r} for {column_in_words(names, first)}"
                )
            warn_of_equal_bounds(scaling, names)
            facts.declared("feature_bounds", [scaling.low.tolist(), scaling.high.tolist()])
        return n_rows, groups, row_norm, scaling


def listener(
    callback: Callable[[StepInfo], None] | None, verbose: int
) -> Callable[[StepInfo], None] | None:
    """Return the function to call after each step: the callback, and a writer of lines.

    Privacy: it is not called if only the last iterate is released.
    """
    if not (verbose > 1 or (verbose and not is_watched())):
        return callback

    def listen(info: StepInfo) -> None:
        if callback is not None:
            callback(info)
        sys.stderr.write(
            f"step {info.step}: step size {info.step_size:.3g}, "
            f"noisy gradient norm {info.gradient_norm:.3g}\n"
        )

    return listen


def warn_of_equal_targets(bounds: tuple[float, float]) -> None:
    """Warn if the declared bounds of the target are equal."""
    if bounds[0] == bounds[1]:
        warnings.warn(
            f"target_bounds has low equal to high, {bounds[0]!r}: every target takes this value",
            EqualBoundsWarning,
            stacklevel=frames_to_the_user(),
        )


def warn_after_release(message: str, category: type[Warning]) -> None:
    """Warn without raising: an error would lose a fit that was charged already."""
    try:
        warnings.warn(message, category, stacklevel=frames_to_the_user())
    except category as error:
        warnings.showwarning(error, category, __file__, 0)


def warn_of_noise(plan: Plan) -> None:
    """Warn if the noise exceeds any possible signal, from the plan alone."""
    if signal_to_noise(plan) < HOPELESS:
        expected = guidance(plan)
        warnings.warn(
            f"{expected.sizes} {expected.verdict} Remedies: {'; or '.join(expected.cures)}.",
            LowSignalWarning,
            stacklevel=frames_to_the_user(),
        )


def warn_of_weights(solution: Solution) -> None:
    """Warn after a weighted fit unless a released sum exceeds its noise.

    Privacy: post-processing of releases. Whether all weights are zero is private.
    """
    if solution.signal is None:
        found = "This fit releases no sum before the model"
    elif solution.signal < _LEAST_SIGNAL:
        found = "No released sum exceeds its noise"
    else:
        return
    warn_after_release(
        f"{found}, so all weights may be 0. In that case the model contains no information about "
        "the rows. A larger budget, or more rows of weight above 0, would help.",
        LowSignalWarning,
    )


def _first(names: tuple[str, ...]) -> str:
    """Return the first names, and the number of the others."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def warn_of_prior(inference: Inference) -> None:
    """Warn of coefficients with intervals mostly from the prior, if there are any."""
    if inference.of_prior:
        warn_after_release(
            "The rows carry little information at this budget about "
            f"{_first(inference.of_prior)}: their intervals in inference_ are mostly those of the "
            "prior (prior_scales). A larger budget, fewer columns or merged categories would help.",
            LowSignalWarning,
        )


def warn_of_unknown(inference: Inference) -> None:
    """Warn of coefficients that cannot be estimated, if there are any."""
    if inference.unknown:
        warn_after_release(
            "Cannot be estimated at this budget, as their information is below the noise level: "
            f"{_first(inference.unknown)}. inference_.params is NaN for them; their values in "
            "coef_ are mostly noise. A larger budget, fewer columns or merged categories would "
            "help.",
            LowSignalWarning,
        )


@functools.cache
def warn_of_slow_sums() -> None:
    """Warn once per process if the sums over rows were not compiled."""
    if COMPILED:
        return
    remedy = "There are no compiled ones for Windows."
    if sys.platform != "win32":
        remedy = (
            "Install a C compiler (Debian or Ubuntu: apt-get install gcc libc6-dev; macOS: "
            "xcode-select --install), then dpglm again, with pip's options --force-reinstall, "
            "--no-deps and --no-cache-dir."
        )
    warnings.warn(
        "dpglm was installed without its compiled sums over rows: results and privacy are the "
        f"same, but fits take longer. {remedy} To silence this: "
        "warnings.simplefilter('ignore', dpglm.SlowSumsWarning)",
        SlowSumsWarning,
        stacklevel=frames_to_the_user(),
    )
