"""`dpglm verify`: recompute the claim of a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from dpglm.cli.console import print_table, say
from dpglm.cli.options import INPUT_FILE, argument, command

if TYPE_CHECKING:
    from dpglm.certificate.certificate import Certificate


@command("Check a certificate.", "dpglm verify report/certificate.json", "dpglm verify model.json")
def verify(certificate: Annotated[Path, argument(INPUT_FILE)]) -> None:
    """Check that the claim in CERTIFICATE follows from its contents.

    Recomputes epsilon and delta from the recorded events with accountants that share no code
    with the one that made the claim. Checks that the noise fits the bounds, the relation and
    the number of releases. CERTIFICATE is a certificate.json of a fit or a study, or a model file.

    A certificate contains the record of its author. No file can prove that the recorded program
    really ran on the rows.

    Exit code: 0 if the claim holds (and the model of a model file is the one that it is about);
    1 if it does not; 2 if the file is not a certificate, or the check could not be made or is too
    costly: it takes at most about a minute and 2 GB.
    """
    from dpglm.certificate.verify import verify as check

    claim, problems = read_claim(certificate)
    found = check(claim)
    for problem in problems:
        say(f"THE MODEL IS NOT THE ONE OF THE CERTIFICATE: {problem}")
    say(found.summary())
    if found.ok:
        say()
        _print_spending(claim)
    undecided = found.too_costly is not None and len(found.findings) == 1
    is_right = found.ok and not problems
    click.get_current_context().exit(0 if is_right else 2 if undecided and not problems else 1)


def _print_spending(claim: Certificate) -> None:
    from dpglm._words import plain_number, rounded_up

    rows = []
    for one in claim.spending():
        mu = "-" if one.mu is None else plain_number(one.mu)
        share = "-" if one.share is None else f"{plain_number(100.0 * one.share, 3)} %"
        rows.append((one.stage, rounded_up(one.epsilon), mu, share))
    heading = f"Budget by stage (delta {rounded_up(claim.delta)})"
    print_table((heading, "epsilon alone", "mu", "mu^2"), rows)


def read_claim(path: Path) -> tuple[Certificate, tuple[str, ...]]:
    """Return the certificate in a file, and where a model there disagrees with it."""
    from dpglm._json import in_file, load
    from dpglm.certificate.certificate import Certificate
    from dpglm.report.model_file import FORMAT, read_model

    with in_file(path):
        document = load(path)
        if not FORMAT.matches(document):
            return Certificate.from_dict(document), ()
        model, problems = read_model(document)
        return model.certificate, problems
