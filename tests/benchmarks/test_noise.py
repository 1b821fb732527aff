"""The benchmark of noise measures all kinds and writes its page; its picture shows the leak."""

from __future__ import annotations

import numpy as np

from benchmarks.noise import OURS, REFERENCE, Rate, low_bits, main, rate_table


def test_everything_is_measured_and_written(tmp_path, capsys):
    (tmp_path / "figures").mkdir()
    (tmp_path / "evidence").mkdir()
    speed = tmp_path / "evidence" / "speed.md"
    marks = "<!-- begin measured: noise -->", "<!-- end measured: noise -->"
    speed.write_text("\n\n".join(("before", marks[0], "old", marks[1], "after")))
    main(["--quick", "--docs", str(tmp_path)])
    page = speed.read_text()
    assert capsys.readouterr().out.strip() in page
    assert "old" not in page
    for text in ("before", OURS, REFERENCE, "OpenDP, vector Gaussian", "variance", "after"):
        assert text in page
    assert (tmp_path / "figures" / "noise_low_bits.svg").stat().st_size > 10_000


def test_ratios_are_medians_of_rounds():
    ours, reference = Rate("ours", (1e6, 2e6, 4e6)), Rate(REFERENCE, (3e6, 2e6, 4e6))
    assert rate_table([ours, reference]).splitlines()[2] == "| ours | 2 [1.5, 3] | 1 [1, 2] |"


def test_low_bits_reveal_values_only_with_naive_noise():
    naive, ours = low_bits(20_000).values()
    assert naive[1.0].min() >= -53 > np.quantile(naive[0.0], 0.5)
    assert ours[0.0].min() == ours[1.0].min() == -24
