"""The program as a whole: help, exit codes, and output to a shell."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import dpglm
from dpglm.cli import options
from dpglm.cli.commands import app

COMMANDS = [
    "demo",
    "schema",
    "describe",
    "plan",
    "fit",
    "evaluate",
    "study",
    "moments",
    "ate",
    "regress",
    "verify",
    "predict",
    "export",
    "monitor",
    "ledger",
    "audit",
]
REQUIRED = {
    "--epsilon": "1",
    "--delta": "1e-6",
    "--n-rows": "9",
    "--target": "ill",
    "--data": "people",
    "--to": "sql",
    "--output": "moments.json",
    "--treatment": "smoker",
    "--outcome": "ill",
    "--adjust": "age",
}
MAIN = "from dpglm.cli import main; main()"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(dpglm.__file__).parent.parent)}


def leaves(command, name=()):
    if not isinstance(command, click.Group):
        yield name, command
        return
    for part, one in command.commands.items():
        yield from leaves(one, (*name, part))


def shell(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )


def test_commands_are_listed_in_the_order_of_use(run):
    done = run("--help")
    assert done.exit_code == 0
    assert list(app.commands) == COMMANDS
    commands = done.stdout.partition("Commands:")[2]
    places = [commands.index(f"\n  {name} ") for name in COMMANDS]
    assert places == sorted(places)


def test_without_a_command_the_help_is_shown(run):
    assert "Examples:\n    dpglm demo" in run().output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_explains_options_and_has_an_example(run, command):
    done = run(command, "-h")
    assert done.exit_code == 0
    assert f"Examples:\n    dpglm {command}" in done.stdout
    for option in app.commands[command].params:
        assert isinstance(option, click.Argument) or option.help, option.name


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_use_options_that_exist(command):
    text = app.commands[command].epilog
    parts = getattr(app.commands[command], "commands", {command: app.commands[command]})
    known = {flag for one in parts.values() for option in one.params for flag in option.opts}
    assert {word for word in text.split() if word.startswith("-")} - {"-"} <= known


def test_version(run):
    assert run("--version").stdout == f"dpglm, version {dpglm.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [("nothing",), ("fit",), ("plan", "--n-rows", "0"), ("fit", "no.csv"), ("--what",)]
)
def test_wrong_usage_ends_with_2_and_a_word_on_standard_error(run, arguments):
    done = run(*arguments)
    assert done.exit_code == 2
    assert "Error: " in done.stderr
    assert done.stdout == ""


def test_an_option_that_must_be_given_is_asked_for(run, files):
    """`dpglm fit` without --epsilon was told that None is not a number."""
    for name, command in leaves(app):
        required = [one for one in command.params if one.required]
        for lacking in required:
            words = list(name)
            for option in required:
                if isinstance(option, click.Argument) and option is not lacking:
                    words.append("people.csv")
                elif option is not lacking:
                    words += [option.opts[-1], REQUIRED.get(option.opts[-1], "schema.json")]
            done = run(*words)
            assert done.exit_code == 2
            kind = "argument" if isinstance(lacking, click.Argument) else "option"
            flags = " / ".join(f"'{flag}'" for flag in lacking.opts)
            # Of several arguments, the last is lacking.
            last = [one for one in required if isinstance(one, click.Argument)][-1:]
            shown = f"'{last[0].human_readable_name}'" if kind == "argument" else flags
            assert f"Missing {kind} {shown}" in done.stderr, done.stderr


def test_a_fit_must_be_given_epsilon(run, files):
    done = run("fit", "people.csv", "--schema", "schema.json", "--model", "model.json")
    assert done.exit_code == 2
    assert "Missing option '--epsilon'" in done.stderr


def test_from_a_shell(files):
    done = shell(MAIN, "schema", "people.csv", "--target", "ill")
    assert (done.returncode, done.stderr) == (0, "")
    assert '"target"' in done.stdout


def test_plan_from_a_file(run, files):
    done = run("plan", "--schema", "schema.json", "--n-rows", "400")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("Plan for LogisticRegression: 400 rows, 3 features\n")
    done = run("plan", "--schema", "people.csv", "--n-rows", "400")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: people.csv is not a JSON file")


def test_help_does_not_wait_for_heavy_packages():
    heavy = ["dp_accounting", "matplotlib", "pandas", "pyarrow.parquet", "sklearn"]
    code = (
        "import sys\nimport dpglm.cli.commands\n"
        f"sys.stderr.write(repr([name for name in {heavy} if name in sys.modules]))"
    )
    assert shell(code).stderr == "[]"


def test_option_needs_help():
    def made(many: bool = False) -> None:
        """Do something."""

    with pytest.raises(AssertionError, match="lacks help for many"):
        options.command("Do something.")(made)
