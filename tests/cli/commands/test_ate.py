"""`dpglm ate`: the effect in a file, and nothing spent on a wrong call."""

import dpglm
from dpglm.certificate.verify import verify

BASE = ("ate", "people.csv", "--schema", "schema.json", "--epsilon", "5", "-o", "effect.json")
ARMS = ("--treatment", "smoker", "--outcome", "ill")


def test_effect_is_printed_and_kept(run, files):
    done = run(*BASE, *ARMS, "--adjust", "age")
    assert done.exit_code == 0, done.output
    found = dpglm.load_effect(files / "effect.json")
    assert found.summary() in done.stdout
    assert verify(found.privacy_).ok


def test_wrong_treatment_is_refused(run, files):
    done = run(*BASE, "--treatment", "age", "--outcome", "ill", "--adjust", "smoker")
    assert done.exit_code == 2
    assert "treatment must be a column with two categories" in done.stderr
    assert not (files / "effect.json").exists()
