"""Bands of additive models cover levels of very different frequencies at a small budget."""

from dpglm.oracle.clipping import FlatClipping
from dpglm.solvers.second_order import newton
from experiments.additive_coverage import uneven


def test_balanced_clipping_covers_uneven_levels(monkeypatch):
    covered, error, _ = uneven(0.3, 4)["g"]
    assert covered > 0.9
    # Planted: clipping shortens the gradients of unlikely targets only.
    monkeypatch.setattr(newton, "BalancedClipping", FlatClipping)
    of_flat = uneven(0.3, 4)["g"]
    assert of_flat[0] < 0.5
    assert error < 0.5 * of_flat[1]
