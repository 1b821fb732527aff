"""The command group and its general help."""

from __future__ import annotations

from typing import Any, final

import click

from dpglm._version import __version__
from dpglm.cli.commands.checks import audit, ledger, verify
from dpglm.cli.commands.models import fit, plan, schema
from dpglm.cli.commands.releases import ate, describe, evaluate, moments
from dpglm.cli.commands.scoring import export, monitor, predict, regress
from dpglm.cli.commands.studies import demo, study
from dpglm.cli.console import interrupted
from dpglm.cli.options import examples


@final
class _InOrderOfUse(click.Group):
    """A group that lists its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            # No command had begun.
            raise interrupted("Interrupted.", stop) from None


@click.group(
    cls=_InOrderOfUse,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
    epilog=examples(
        "dpglm demo                                               a study of public data",
        "",
        "dpglm schema people.csv --target income -o schema.json   a form to fill in by hand",
        "dpglm plan --schema schema.json --n-rows 30000           the cost of a fit",
        "dpglm fit people.csv --schema schema.json --epsilon 1 --model model.json --report report",
        "dpglm evaluate held_out.csv --model model.json --epsilon 0.5    its performance",
        "dpglm study study.toml people.csv --out results          describe, fit and evaluate",
        "dpglm verify report/certificate.json                     check the claim",
        "dpglm predict new.csv --model model.json -o predictions.csv",
        "dpglm export model.json --to sql                         scores in a database",
    ),
)
@click.version_option(__version__, prog_name="dpglm")
def app() -> None:
    """Fit, describe and evaluate models of private rows under differential privacy.

    Files that are written (model, certificate, report) may be published: epsilon and delta bound
    how much they reveal about any one row. Messages on the terminal are for the holder of the rows:
    an error about a value that does not match the schema shows that value.

    Tables are CSV files with a header, Parquet files, or addresses of tables in databases.

    Exit codes: 0 success; 1 a certificate or a ledger does not hold (verify), or a claim is refuted
    (audit); 2 wrong options or input, and nothing was spent; 3 an error after privacy budget was
    spent: the message states how much, and where results are or how to continue; 130 interrupted
    (Ctrl-C); 143 and 129 ended by SIGTERM and SIGHUP. With exit code 2 no output file exists.
    Failing to print is an error only for commands that write no file.
    """


for one in (
    *(demo, schema, describe, plan, fit, evaluate, study, moments, ate, regress),
    *(verify, predict, export, monitor, ledger, audit),
):
    app.add_command(one)
