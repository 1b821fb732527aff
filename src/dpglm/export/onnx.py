"""Predictions as an ONNX model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from dpglm._score import GAP, Notation
from dpglm.export.scoring import Scoring
from dpglm.export.sql import BLANKS, forms
from dpglm.tables.cells import Entry

if TYPE_CHECKING:
    import onnx

_SIGNS = {"-": "Sub", "*": "Mul", "/": "Div", "<": "Less", "<=": "LessOrEqual"}
_FUNCTIONS = {"exp": "Exp", "log": "Log", "sqrt": "Sqrt", "floor": "Floor"}
# With RegexFullMatch, and supported by runtimes since 2024.
_OPSETS = (("", 20), ("ai.onnx.ml", 4))
_IR_VERSION = 10


def as_onnx(scoring: Scoring) -> onnx.ModelProto:
    """Return a model with an input of shape (n, 1) for each column, and one output (n, outputs)."""
    try:
        import onnx
        from onnx import checker, helper
    except ImportError as error:
        raise ImportError(
            "an export to ONNX needs onnx, which is not installed: pip install 'dpglm[onnx]'"
        ) from error
    graph = _Graph(onnx)
    values = [one.write(graph) for _, one in scoring.outputs]
    outputs = [graph.node("Expand", one, graph.shape()) for one in values]
    graph.nodes.append(helper.make_node("Concat", outputs, ["predictions"], axis=1))
    kinds = {"number": onnx.TensorProto.DOUBLE, "text": onnx.TensorProto.STRING}
    made = helper.make_graph(
        graph.nodes,
        "dpglm",
        [
            helper.make_tensor_value_info(column, kinds[kind], ["n", 1])
            for column, kind in graph.inputs.items()
        ],
        [helper.make_tensor_value_info("predictions", kinds["number"], ["n", len(values)])],
        graph.constants,
        doc_string=f"{scoring.what}: {', '.join(name for name, _ in scoring.outputs)}",
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in _OPSETS]
    model = helper.make_model(made, opset_imports=opsets, producer_name="dpglm")
    model.ir_version = _IR_VERSION
    checker.check_model(model)
    return model


@final
class _Graph(Notation[str]):
    """Writes nodes of a graph, each once; refused rows are NaN.

    A number is a tensor of shape (n, 1), or (1, 1) where it is constant.
    """

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: dict[str, str] = {}
        self._known: dict[Any, str] = {}

    def node(self, operator: str, *arguments: str, **settings: Any) -> str:
        """Add a node, unless there is an equal one, and return the name of its result."""
        key = (operator, arguments, repr(settings))
        if key not in self._known:
            name = self._known[key] = f"dpglm:{len(self._known)}"
            self.nodes.append(
                self._onnx.helper.make_node(operator, list(arguments), [name], **settings)
            )
        return self._known[key]

    def array(self, values: Any, dtype: Any = np.float64) -> str:
        """Add a constant array, and return its name."""
        array = np.asarray(values, dtype)
        key = (array.tobytes(), array.shape, array.dtype.str)
        if key not in self._known:
            name = self._known[key] = f"dpglm:{len(self._known)}"
            self.constants.append(self._onnx.numpy_helper.from_array(array, name))
        return self._known[key]

    def shape(self) -> str:
        """Return the shape of a column."""
        return self.node("Shape", next(iter(self.inputs)))

    def _input(self, column: str, kind: str) -> str:
        if self.inputs.setdefault(column, kind) != kind:
            raise ValueError(f"column {column!r} must be used as numbers or as text, got both")
        return column

    def constant(self, value: float) -> str:
        return self.array([[value]])

    def cell(self, column: str) -> str:
        return self._input(column, "number")

    def moment(self, column: str, format: str | None) -> str:
        # Milliseconds are distinct as days of any year, microseconds are not.
        days = self.arithmetic("*", self.cell(column), self.constant(86_400_000.0))
        rounded = self.function("floor", self.total([days, self.constant(0.5)]))
        return self._seconds(column, self.arithmetic("/", rounded, self.constant(1000.0)))

    def span(self, column: str, unit: float) -> str:
        return self._seconds(column, self.arithmetic("*", self.cell(column), self.constant(unit)))

    def _seconds(self, column: str, seconds: str) -> str:
        """Return seconds, NaN for more than any date or duration has, and GAP for missing ones."""
        inside = self.arithmetic("<", self.node("Abs", seconds), self.constant(1e13))
        known = self.choice(inside, seconds, self.refused(column))
        return self.choice(self.is_missing(column), self.constant(GAP), known)

    def total(self, terms: Sequence[str]) -> str:
        value = terms[0]
        for one in terms[1:]:
            value = self.node("Add", value, one)
        return value

    def arithmetic(self, sign: str, left: str, right: str) -> str:
        return self.node(_SIGNS[sign], left, right)

    def function(self, name: str, argument: str) -> str:
        if name != "arctan":
            return self.node(_FUNCTIONS[name], argument)
        # Runtimes have it in single precision only.
        proto = self._onnx.TensorProto
        single = self.node("Atan", self.node("Cast", argument, to=proto.FLOAT))
        return self.node("Cast", single, to=proto.DOUBLE)

    def power(self, base: str, exponent: float) -> str:
        return self.node("Pow", base, self.constant(exponent))

    def choice(self, test: str, first: str, other: str) -> str:
        return self.node("Where", test, first, other)

    def lookup(self, column: str, cases: Sequence[tuple[Entry, str]], other: str | None) -> str:
        sample = next(entry for entry, _ in cases if entry != "")
        if not isinstance(sample, str):
            found = self.refused(column) if other is None else other
            cell = self._input(column, "number")
            for entry, value in cases:
                if entry == "":
                    test = self.is_missing(column)
                else:
                    test = self.node("Equal", cell, self.constant(float(entry)))
                found = self.choice(test, value, found)
            return found
        cell = self._input(column, "text")
        keys = {form: i for i, (entry, _) in enumerate(cases) for form in forms(entry)}
        position = self.node(
            "LabelEncoder",
            cell,
            domain="ai.onnx.ml",
            keys_strings=list(keys),
            values_int64s=list(keys.values()),
            default_int64=len(cases),
        )
        if other is None:
            other = self.refused(column)
        else:
            # Blanks around a cell are not removed here.
            pattern = f"(?s)[{BLANKS} ].*|.*[{BLANKS} ]"
            odd = self.node("RegexFullMatch", cell, pattern=pattern)
            other = self.choice(odd, self.refused(column), other)
        values = [*(value for _, value in cases), other]
        wide = [self.node("Expand", value, self.shape()) for value in values]
        return self.node("GatherElements", self.node("Concat", *wide, axis=1), position, axis=1)

    def is_number(self, column: str) -> str:
        cell = self.cell(column)
        infinite = self.node("IsInf", cell)
        return self.node("Not", self.node("Or", self.node("IsNaN", cell), infinite))

    def is_missing(self, column: str) -> str:
        return self.node("IsNaN", self.cell(column))

    def named(self, values: Sequence[str], use: Callable[[Sequence[str]], str]) -> str:
        return use(values)

    def refused(self, column: str) -> str:
        return self.constant(float("nan"))
