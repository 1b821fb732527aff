"""Fitted models as SQL, Python and ONNX, for scores where the rows are."""
