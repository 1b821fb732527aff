"""The table of last layers, and the bound that known second moments give."""

import numpy as np

from experiments import layer_widths, ridge_classifier

NAMES = [name for name, _ in layer_widths.MAPS.values()]


class TestTable:
    def test_new_line_replaces_old_one_in_fixed_order(self, tmp_path):
        page = tmp_path / "page.md"
        mark = f"measured: {layer_widths.NAME} -->"
        page.write_text(f"head\n<!-- begin {mark}\n\n<!-- end {mark}\ntail")
        for name, cell in ((NAMES[1], "1"), (NAMES[0], "2"), (NAMES[1], "3")):
            layer_widths._write(page, f"| {name} | softmax | {cell} |")
        lines = page.read_text().splitlines()
        table = [line for line in lines if line.startswith("|")]
        assert table[2:] == [f"| {NAMES[0]} | softmax | 2 |", f"| {NAMES[1]} | softmax | 3 |"]
        assert (lines[0], lines[-1]) == ("head", "tail")


def test_known_moments_separate_classes_at_the_allowed_noise(capsys):
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=4000)
    X = np.eye(20, dtype=np.float32)[y] + 0.1 * rng.standard_normal((4000, 20), dtype=np.float32)
    ridge_classifier.known_moments(X, y, 3000, (1e-3, 1.0))
    drowned, seen = capsys.readouterr().out.splitlines()
    assert seen == "1 known moments, penalty 100.00 %, filter 100.00 %"
    assert all(float(word) < 40.0 for word in drowned.split()[4::3])
