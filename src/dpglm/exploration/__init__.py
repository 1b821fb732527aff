"""Private exploration: what a table says, on one budget."""

from dpglm.exploration.describe import DescriptionPlan, Precision, describe, plan_description
from dpglm.exploration.description import Description
from dpglm.exploration.results import ColumnDescription, GroupDescription, Number, TwoWayTable

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
