"""Shares in the slack of scores: less noise than when paid for, and little bias."""

from __future__ import annotations

import pytest

from experiments import slack

pytestmark = pytest.mark.filterwarnings("ignore")


def test_released_shares_have_less_bias_than_noise():
    (long, clipped), bias, noise = slack.measured("least squares", 2.0, 0.25, seeds=1)
    assert (abs(bias) < 0.2 * noise).all()
    assert (noise < 6e-4).all()
    assert max(long, clipped) < 0.01


def test_parts_that_exceed_the_slack_are_found():
    _, bias, noise = slack.measured("least squares", 2.0, 0.5, seeds=1)
    assert bias[1] > 10.0 * noise[1]


def test_table_is_written_between_its_marks(tmp_path):
    page = tmp_path / "evidence" / "solvers.md"
    page.parent.mkdir()
    page.write_text("<!-- begin measured: slack -->\n<!-- end measured: slack -->\n")
    slack.main(["--seeds", "1", "--docs", str(tmp_path)])
    assert page.read_text().count("\n| ") == 7
