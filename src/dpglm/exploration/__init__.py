"""Private descriptions of tables."""

from dpglm.exploration.describe import DescriptionPlan, Precision, describe, plan_description
from dpglm.exploration.description import Description
from dpglm.exploration.results import ColumnDescription, RowsDescription, TwoWayTable
from dpglm.tabulate.numbers import Number

__all__ = [
    "ColumnDescription",
    "Description",
    "DescriptionPlan",
    "Number",
    "Precision",
    "RowsDescription",
    "TwoWayTable",
    "describe",
    "plan_description",
]
