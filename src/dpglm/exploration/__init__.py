"""Private descriptions of tables."""

from dpglm.exploration.describe import Precision, describe, plan_description
from dpglm.exploration.description import Description
from dpglm.exploration.estimation import ColumnDescription, RowsDescription, TwoWayTable
from dpglm.tabulate import Number

__all__ = [
    "ColumnDescription",
    "Description",
    "Number",
    "Precision",
    "RowsDescription",
    "TwoWayTable",
    "describe",
    "plan_description",
]
