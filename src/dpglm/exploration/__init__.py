"""Private exploration: what a table says, on one budget."""

from dpglm.exploration.describe import describe
from dpglm.exploration.description import Description
from dpglm.exploration.numbers import Number
from dpglm.exploration.planning import DescriptionPlan, Precision, plan_description
from dpglm.exploration.results import ColumnDescription, GroupDescription, TwoWayTable

__all__ = [
    "ColumnDescription",
    "Description",
    "DescriptionPlan",
    "GroupDescription",
    "Number",
    "Precision",
    "TwoWayTable",
    "describe",
    "plan_description",
]
