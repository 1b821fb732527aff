"""Private descriptions of tables."""

from dpglm.exploration.describe import Precision as Precision
from dpglm.exploration.describe import describe as describe
from dpglm.exploration.describe import plan_description as plan_description
from dpglm.exploration.description import Description as Description
from dpglm.exploration.estimation import ColumnDescription as ColumnDescription
from dpglm.exploration.estimation import RowsDescription as RowsDescription
from dpglm.exploration.estimation import TwoWayTable as TwoWayTable
from dpglm.tabulate import Number as Number
