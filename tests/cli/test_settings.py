"""Values of --set and --solver-set: valid ones, or an error that states the valid ones."""

import json
import math
import typing

import numpy as np
import pytest

from dpglm.cli.fitting import (
    _NOT_SETTABLE,
    ESTIMATORS,
    estimator_class,
    make_estimator,
    setting,
    settings_of,
)
from dpglm.report.model_file import load_model
from dpglm.solvers import SOLVERS

TEXTS = (
    *("true", "True", "TRUE", "false", "False", "fAlSe", "none", "None", "null", "yes", "no", "on"),
    *("0", "1", "-3", "10", "0.5", "1e-3", "1e3", "inf", "-inf", "Infinity", "nan", "NaN", "1_0"),
    *("", " ", "text", "hinge", '"hinge"', "ovr", "multinomial", "[1, 2]", '{"a": 2}', "{", "()"),
)
BUILT_IN = {bool, int, float, str, dict, type(None)}


def subjects():
    """Annotations of everything that the command line sets by text."""
    for name in ESTIMATORS:
        hints = typing.get_type_hints(estimator_class(name).__init__)
        yield name, {key: kind for key, kind in hints.items() if key not in _NOT_SETTABLE}
    for name, solver in SOLVERS.items():
        yield name, typing.get_type_hints(type(solver()))


def takes(kind):
    """The built-in types, or values, that an annotation allows; no code shared with the reader."""
    parts = typing.get_args(kind)
    if typing.get_origin(kind) is typing.Literal:
        return set(parts)
    if kind in BUILT_IN or not parts:
        return {kind}
    if "Mapping" in str(kind) and "|" not in str(kind):
        return {dict}
    return set().union(*map(takes, parts))


def problems(read):
    """Settings with a value that the parameter does not accept."""
    for subject, annotations in subjects():
        for name, kinds in settings_of(annotations).items():
            allowed = takes(annotations[name])
            for text in TEXTS:
                try:
                    value = read(name, kinds, text)
                except ValueError:
                    continue
                fits = type(value) in allowed or (type(value) is int and float in allowed)
                if not fits and not (isinstance(value, str) and value in allowed):
                    yield f"{subject}.{name}={text}: {value!r}"


def test_setting_is_valid_or_refused():
    assert list(problems(setting)) == []


def test_json_or_else_text_is_found_out():
    def planted(name, kinds, text):
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return text

    found = list(problems(planted))
    assert "logistic.fit_intercept=False: 'False'" in found
    assert "logistic.fit_intercept=0: 0" in found


@pytest.mark.parametrize("text", ["false", "False", "FALSE", "true", "True"])
def test_truth_in_any_case(fit, text):
    """`--set fit_intercept=False` fitted an intercept: the text is true."""
    done = fit("--set", f"fit_intercept={text}")
    if text.lower() == "false":
        assert done.exit_code == 2
        assert "--set fit_intercept=false: the columns are centred" in done.output
        assert "--formula '0 + .'" in done.output
        return
    assert done.exit_code == 0, done.output
    assert np.any(load_model("model.json").intercept_ != 0.0)


@pytest.mark.parametrize("options", [(), ("--set", "fit_intercept=False")])
def test_without_an_intercept_by_formula(fit, options):
    pytest.importorskip("formulaic")
    done = fit("--formula", "0 + .", *options)
    assert done.exit_code == 0, done.output
    assert not np.any(load_model("model.json").intercept_)
    refused = fit("--formula", "0 + .", "--force", "--set", "fit_intercept=true")
    assert "the formula '0 + .' has none" in refused.output


@pytest.mark.parametrize(
    ("estimator", "setting", "name", "value"),
    [
        ("logistic", "C=inf", "C", math.inf),
        ("logistic", "C=10", "C", 10),
        ("logistic", "multi_class=ovr", "multi_class", "ovr"),
        ("logistic", "weight_bound=NONE", "weight_bound", None),
        ("logistic", "random_state=none", "random_state", None),
        ("logistic", 'class_weight={"1": 2, "0": 0.5}', "class_weight", {1: 2, 0: 0.5}),
        ("svm", "loss=hinge", "loss", "hinge"),
        ("svm", 'loss="hinge"', "loss", "hinge"),
        ("huber", "threshold=1e-1", "threshold", 0.1),
    ],
)
def test_values(estimator, setting, name, value):
    classes = {"classes": [0, 1]} if estimator in ("logistic", "svm") else {}
    found = getattr(make_estimator(estimator, [setting], **classes), name)
    assert (type(found), found) == (type(value), value)


def test_class_weights_reach_labels_that_are_truths():
    made = make_estimator(
        "logistic", ['class_weight={"true": 2, "False": 3}'], classes=[False, True]
    )
    assert made.class_weight == {True: 2, False: 3}


@pytest.mark.parametrize(
    ("command", "setting", "says"),
    [
        ("--set", "fit_intercept=no", "fit_intercept must be true or false, got 'no'"),
        ("--set", "fit_intercept=1", "fit_intercept must be true or false, got '1'"),
        ("--set", "C=much", "C must be a number, got 'much'"),
        ("--set", "C=nan", "C must be a number, got 'nan'"),
        ("--set", "C=none", "C must be a number, got 'none'"),
        ("--set", "random_state=1.5", "random_state must be none or a whole number, got '1.5'"),
        ("--set", "multi_class=both", "multi_class must be 'multinomial' or 'ovr', got 'both'"),
        ("--set", "class_weight=2", "class_weight must be none or a JSON object such as"),
        ("--solver-set", "n_steps=2.0", "n_steps must be none or a whole number, got '2.0'"),
        ("--solver-set", "shrink=maybe", "shrink must be true or false, got 'maybe'"),
        ("--solver-set", "schedule=x", "must be NAME=VALUE with a name among automatic_clipping"),
    ],
)
def test_invalid_parameter_value_is_refused(run, fails, files, command, setting, says):
    said = fails(run("audit", command, setting))
    assert f"{command} {setting}: {says}" in said


def test_solver_without_settings_is_reported(run, fails):
    said = fails(run("audit", "--solver", "dpsgd_f", "--solver-set", "clip=1"))
    assert "none: it takes no settings" in said
