"""The device benchmark: right measurements, all of them printed."""

from __future__ import annotations

import pytest

from benchmarks.device import Timing, main, table


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_small_problem_is_measured_and_printed(capsys, dtype):
    sizes = ["--rows", "70", "--columns", "3", "--classes", "4"]
    main(["--device", "cpu", "--dtype", dtype, *sizes, "--rounds", "2"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith(f"70 rows, 3 columns, 4 classes, {dtype}, on the CPU")
    assert [line.split("|")[1].strip() for line in printed[4:]] == [
        "X @ W and X.T @ S",
        "clipped gradient sum",
        "private step, with noise",
    ]


def test_ratios_are_medians_of_rounds():
    first = Timing("a", (0.001, 0.002, 0.004))
    second = Timing("b", (0.003, 0.002, 0.004))
    assert table([first, second]).splitlines()[3] == "| b | 3.00 | 2.50 to 3.50 | 1.00 |"


@pytest.mark.filterwarnings("ignore::dpglm.UnpaidReleaseWarning")
def test_a_whole_fit_is_measured(capsys):
    main(["--fit", "--rows", "300", "--columns", "3", "--classes", "4", "--rounds", "1"])
    assert capsys.readouterr().out.splitlines()[-1].startswith("| fit with default settings |")
