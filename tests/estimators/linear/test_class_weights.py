"""class_weight: keys of every type that equals a label, or that JSON can write."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpglm import LinearSVC, LogisticRegression, RobustClassifier
from dpglm.certificate import Certificate, verify
from dpglm.data.stream.stored import MappedRows
from dpglm.estimators.linear.classifiers import class_factors, weights_by_text
from dpglm.report import load_model, save_model
from dpglm.solvers import NoisyGD
from tests.slowly import together

N = 60
KEYS = {
    "int": ([0, 1], lambda label: label),
    "numpy int": ([0, 1], np.int64),
    "short numpy int": ([0, 1], np.uint8),
    "float of int": ([0, 1], float),
    "bool of int": ([0, 1], bool),
    "text of int": ([0, 1], str),
    "JSON of int": ([0, 1], json.dumps),
    "negative int": ([-1, 1], str),
    "bool": ([False, True], lambda label: label),
    "numpy bool": ([False, True], np.bool_),
    "int of bool": ([False, True], int),
    "text of bool": ([False, True], str),
    "JSON of bool": ([False, True], json.dumps),
    "float": ([1.0, 2.0], np.float32),
    "text of float": ([1.0, 2.0], str),
    "text": (["no", "yes"], lambda label: label),
    "numpy text": (["no", "yes"], np.str_),
    "text of digits": (["0", "1"], lambda label: label),
}


def model(classes, class_weight, kind=LogisticRegression, **settings):
    return kind(
        classes=classes,
        class_weight=class_weight,
        row_norm=2.0,
        solver=NoisyGD(n_steps=3),
        random_state=1,
        **settings,
    )


def rows(classes):
    X = np.random.default_rng(0).uniform(-1.0, 1.0, size=(N, 3))
    return X, np.array(classes)[np.arange(N) % len(classes)]


@pytest.mark.parametrize(("classes", "key"), KEYS.values(), ids=KEYS)
def test_a_key_of_any_type_that_means_a_label_is_that_label(classes, key, tmp_path):
    X, y = rows(classes)
    by_hand = model(classes, None, weight_bound=5.0).fit(X, y, np.where(y == y[1], 5.0, 1.0))
    fitted = model(classes, {key(classes[1]): 5}).fit(X, y)
    np.testing.assert_array_equal(fitted.coef_, by_hand.coef_)
    np.testing.assert_array_equal(
        model(classes, {key(classes[1]): 5}).fit(MappedRows(X, y)).coef_, fitted.coef_
    )
    # The values in certificates and model files can be declared again.
    certificate = Certificate.from_dict(json.loads(json.dumps(fitted.privacy_.to_dict())))
    assert certificate == fitted.privacy_
    assert verify(certificate).ok
    fact = certificate.fact("class_weight").value
    assert fact == {str(classes[0]): 1.0, str(classes[1]): 5.0}
    again = model(classes, fact).fit(X, y)
    np.testing.assert_array_equal(again.coef_, fitted.coef_)
    assert again.privacy_ == fitted.privacy_
    save_model(fitted, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    assert loaded.certificate.fact("class_weight").value == fact
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))


@together("kind", [LogisticRegression, LinearSVC, RobustClassifier])
@together(
    ("classes", "wrong", "message"),
    [
        ([0, 1], {2: 1.0}, r"keys among the classes \[0, 1\], got 2"),
        ([0, 1], {"2": 1.0}, r"keys among the classes \[0, 1\], got '2'"),
        ([0, 1], {"": 1.0}, "keys among the classes"),
        ([0, 1], {(1,): 1.0}, "keys among the classes"),
        ([0, 1], {None: 1.0}, "keys among the classes"),
        ([0, 1], {float("nan"): 1.0}, "keys among the classes"),
        (["0", "1"], {1: 2.0}, r"keys among the classes \['0', '1'\], got 1"),
        ([False, True], {"yes": 2.0}, "keys among the classes"),
        ([0, 1], {1: 2.0, "1": 3.0}, "each class once, got 1 and '1' for 1"),
        ([0, 1], {0: 0.0, 1: 0.0}, "above 0 for at least one class"),
        ([0, 1], {0: -1.0}, r"class_weight\[0\] must be"),
        ([0, 1], {0: float("inf")}, r"class_weight\[0\] must be"),
        ([0, 1], {0: "2"}, r"class_weight\[0\] must be"),
        ([0, 1], "balanced", "private class counts"),
    ],
)
def test_invalid_class_weight_is_refused_before_spending(kind, classes, wrong, message):
    X, y = rows(classes)
    for call in (lambda one: one.plan(N, 3), lambda one: one.fit(X, y)):
        one = model(classes, wrong, kind)
        with pytest.raises(ValueError, match=message):
            call(one)
        assert not hasattr(one, "coef_")


LABELS = st.one_of(
    st.lists(st.integers(-9, 9), min_size=2, max_size=5, unique=True),
    st.just([False, True]),
    st.lists(st.text(max_size=4), min_size=2, max_size=5, unique=True),
    st.lists(st.floats(-9.0, 9.0), min_size=2, max_size=5, unique=True),
)


@given(labels=LABELS, data=st.data())
def test_weights_survive_json_whatever_the_labels_are(labels, data):
    classes = np.unique(np.array(labels, dtype=object if isinstance(labels[0], str) else None))
    chosen = data.draw(st.dictionaries(st.sampled_from(classes.tolist()), st.floats(0.5, 9.0)))
    factors = class_factors(chosen, classes)
    assert factors.tolist() == [chosen.get(label, 1.0) for label in classes.tolist()]
    assert LogisticRegression(class_weight=chosen)._task_of(2).heaviest >= factors.max()
    read = json.loads(json.dumps(weights_by_text(chosen, classes)))
    np.testing.assert_array_equal(class_factors(read, classes), factors)


def test_a_planted_exchange_of_labels_would_be_found():
    classes = np.array([0, 1])
    exchanged = {"1": 5.0, "0": 1.0}
    assert class_factors(exchanged, classes).tolist() == [1.0, 5.0]
    assert class_factors({"0": 5.0, "1": 1.0}, classes).tolist() != [1.0, 5.0]
