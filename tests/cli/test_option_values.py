"""Whatever text an option is given, the command ends in a result or in a plain message."""

import click
import pytest

from dpglm.cli.commands import app
from dpglm.cli.console import CommandPath

TEXTS = ("", "x", "-1", "0", "nan", "1e999", "9" * 400, "[]", '{"a": 1}', "=", "age=", "age=1",
         "=x", ",", "0,1", "1,0", "age,ill", ":", "age:age", "C=[]", "C={}", "segments={}",
         "~", "ill ~ (", "ill", "漢=\u202e")  # fmt: skip
SCHEMA = ("--schema", "schema.json")
ACCEPTED = {
    "describe": ("people.csv", *SCHEMA, "--epsilon", "1", "--delta", "1e-5"),
    "evaluate": ("people.csv", "--model", "model.json", "--epsilon", "1", "--delta", "1e-5"),
    "fit": (
        "people.csv",
        *SCHEMA,
        "--epsilon",
        "1",
        "--delta",
        "1e-5",
        "--model",
        "new.json",
        "--force",
    ),
    "plan": (*SCHEMA, "--n-rows", "400"),
    "predict": ("people.csv", "--model", "model.json", "-o", "new.csv", "--force"),
    "schema": ("people.csv", "--target", "ill"),
    "audit": ("--runs", "10"),
    "ledger create": ("new.ledger", "--data", "x", "--epsilon", "1", "--delta", "1e-6"),
}
SLOW = ("audit", "describe", "evaluate", "fit")
WITH_CURVES = ("--additive",)


def text_options(name):
    command = app
    for part in name.split():
        command = command.commands[part]
    for option in command.params:
        takes_text = not isinstance(option.type, CommandPath | click.IntRange | click.Choice)
        if isinstance(option, click.Option) and takes_text and not option.is_flag:
            yield option.opts[-1]


@pytest.mark.parametrize(
    "name",
    [
        # tests/laws/test_argument_laws.py tries what these pass on.
        pytest.param(one, marks=pytest.mark.slow) if one in SLOW else one
        for one in ACCEPTED
    ],
)
def test_text_of_any_option_ends_in_no_defect(run, fit, name):
    assert fit("--delta", "1e-5").exit_code == 0
    options = [one for one in text_options(name) if one not in ACCEPTED[name]]
    of_curves = {"--interaction", "--monotone"}
    for option in (*options, *(one for one in ACCEPTED[name] if one in text_options(name))):
        curves = WITH_CURVES if option in of_curves else ()
        for text in TEXTS:
            done = run(*name.split(), *ACCEPTED[name], *curves, option, text)
            assert done.exit_code in (0, 1, 2), (option, text, done.output)
            assert "defect" not in done.output, (option, text, done.output)
            assert "Traceback" not in done.output, (option, text, done.output)
