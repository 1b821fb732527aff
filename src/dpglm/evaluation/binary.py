"""Two classes: score histograms of the negative and the positive rows, and their release."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_real
from dpglm.data.spec import DataSpec
from dpglm.evaluation.binary_result import BinaryResult, usual_threshold
from dpglm.evaluation.cells import (
    LARGEST_LOSS,
    LEAST_FINE,
    MergedCells,
    keys_of,
    n_cells_for,
    n_fine_for,
    refined_column,
)
from dpglm.evaluation.curves import Positions
from dpglm.evaluation.estimates import Noisy
from dpglm.evaluation.task import (
    Released,
    Task,
    class_codes,
    class_list,
    finite,
    in_range,
    known,
    weighted,
)
from dpglm.oracle.row_sums.tabulated import Cells
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.solvers.base import Plan
from dpglm.solvers.composite.score_tables import KEY_UNIT, ScoreTables, plan_score_tables

__all__ = ["BinaryTask"]

Floats: TypeAlias = NDArray[np.float64]

_LABEL, _SCORE, _LOSS, _BRIER, _PREDICTED, _POSITION = 1, 2, 3, 4, 5, 6
_HISTOGRAM_SHARE, _LOSS_SHARE, _BRIER_SHARE = 0.7, 0.1, 0.1
_PREDICTED_SHARE, _POSITION_SHARE = 0.05, 0.05
# Standard deviation of a mean position within a cell that is expected.
_AWAY = 0.3


@final
@dataclass(frozen=True)
class BinaryTask(Task):
    """Scores of two classes.

    Parameters
    ----------
    classes : tuple
        The negative and the positive class.
    thresholds : tuple of float, optional
        Scores at which decisions are of interest: cells begin there, so that no cell holds
        decisions of both kinds. By default 0.5 for probabilities, and 0 for other scores.
    probabilities : bool, default=True
        Whether scores are probabilities, so that calibration, Brier score and log loss are meant;
        other scores are any finite numbers.
    n_fine : int
        Number of fine cells of scores; plans set it.
    """

    classes: tuple[Any, ...]
    thresholds: tuple[float, ...] | None = None
    probabilities: bool = True
    n_fine: int = LEAST_FINE

    def __post_init__(self) -> None:
        classes = class_list(self.classes)
        if len(classes) != 2:
            raise ValueError(f"classes must be two, got {list(classes)!r}")
        object.__setattr__(self, "classes", classes)
        given = (
            (usual_threshold(self.probabilities),) if self.thresholds is None else self.thresholds
        )
        ends = {"above": 0.0, "below": 1.0} if self.probabilities else {}
        found = {check_real("thresholds", one, **ends) for one in given}
        object.__setattr__(self, "thresholds", tuple(sorted(found)))

    def for_rows(self, n_rows: int, mu: float) -> Self:
        return dataclasses.replace(self, n_fine=n_fine_for(n_rows, mu))

    @property
    def means(self) -> tuple[tuple[str, float, int], ...]:
        return (
            ("log loss", 0.5 * LARGEST_LOSS, 1),
            ("Brier score", 0.5, 2),
            ("mean prediction", 0.5, 3),
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"classes": list(self.classes)}

    def plan(
        self, data: DataSpec, n_levels: int, budget: PrivacyBudget, adjacency: Adjacency
    ) -> Plan:
        mu = budget.gdp_mu() / adjacency.sum_sensitivity(data.reach(1))
        n_cells = n_cells_for(data.n_rows // n_levels, mu)
        refined = refined_column(
            _LABEL,
            _SCORE,
            self.n_fine,
            n_cells,
            probabilities=self.probabilities,
            thresholds=self.thresholds or (),
            position=_POSITION if self.probabilities else None,
        )
        histogram = Cells((0, _LABEL, _SCORE), (n_levels, 2, refined.merged_size))
        tables: tuple[Cells, ...] = (histogram,)
        if self.probabilities:
            tables = (
                weighted(histogram, _HISTOGRAM_SHARE),
                weighted(Cells((0,), (n_levels,), values=(_LOSS,)), _LOSS_SHARE),
                weighted(Cells((0,), (n_levels,), values=(_BRIER,)), _BRIER_SHARE),
                weighted(Cells((0,), (n_levels,), values=(_PREDICTED,)), _PREDICTED_SHARE),
                weighted(
                    Cells((_SCORE,), (refined.merged_size,), values=(_POSITION,)), _POSITION_SHARE
                ),
            )
        data = known(data, 7, max(KEY_UNIT * refined.span[2], n_levels))
        return plan_score_tables(data, budget, adjacency, (refined,), tables)

    def n_added(self, plan: Plan) -> int:
        method = plan.method
        assert isinstance(method, ScoreTables)
        (refined,) = method.refined
        # Heavy cells, which are few, are left out.
        used = refined.n_cells + len(refined.cuts)
        return method.tables[0].size // refined.merged_size * used

    def encode(self, y: NDArray[Any], predictions: Floats) -> Floats:
        label = class_codes(y, self.classes)
        if not self.probabilities:
            score = finite("scores", predictions)
            losses = np.zeros((4, len(score)))
        else:
            remedy = ": give probabilities=False for scores of any size"
            score = in_range("scores", predictions, 0.0, 1.0, "(n,)", 1, remedy)
            right = np.where(label == 1, score, 1.0 - score)
            with np.errstate(divide="ignore"):
                loss = np.minimum(-np.log(right), LARGEST_LOSS)
            sums = [loss / LARGEST_LOSS, (1.0 - right) ** 2, score, np.full(len(score), 0.5)]
            losses = 2.0 * np.stack(sums) - 1.0
        return np.column_stack([label, KEY_UNIT * keys_of(score, self.probabilities), *losses])

    def results(self, released: Released) -> tuple[BinaryResult, ...]:
        method = released.plan.method
        assert isinstance(method, ScoreTables)
        (found,) = method.found(released.values)
        cells = MergedCells.of(found, self.probabilities)
        tables = method.table_values(released.values)
        noise = [method.coefficient_noise / table.weight for table in method.tables]
        histogram = tables[0][:, :, cells.there]
        n_rows = released.n_rows
        if n_rows is not None:
            histogram = histogram + (n_rows - histogram.sum()) / histogram.size
        sums, positions = tables[1:4], Positions.none()
        if self.probabilities:
            rows = np.maximum(histogram.sum(axis=(0, 1)), 1.0)
            positions = Positions.of(tables[4][cells.there], rows, noise[4], _AWAY)

        def result(chosen: slice, total: int | None) -> BinaryResult:
            n_added = len(range(released.n_levels)[chosen])
            counts = histogram[chosen].sum(axis=0)
            values = [*counts.ravel(), *positions.sums, *(one[chosen].sum() for one in sums)]
            stds = math.sqrt(n_added) * np.repeat(noise[:4], [counts.size] + [1] * len(sums))
            stds = np.insert(stds, counts.size, positions.noise)
            noisy = Noisy.of(
                np.array(values), stds, slice(0, counts.size), total, released.clustering
            )
            return BinaryResult(self.classes, noisy, cells, positions.rows, released.z)

        groups = [result(slice(g, g + 1), None) for g in range(released.n_levels)]
        everything = result(slice(None), n_rows)
        return (everything,) if released.n_levels == 1 else (*groups, everything)
