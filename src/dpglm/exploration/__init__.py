"""Private descriptions of tables."""

from dpglm.exploration.describe import Precision, describe, plan_description
from dpglm.exploration.description import Description
from dpglm.exploration.results import ColumnDescription, RowsDescription, TwoWayTable
from dpglm.tabulate.numbers import Number

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
