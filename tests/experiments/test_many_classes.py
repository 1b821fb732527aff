"""The table of many classes, on fewer of them."""

from experiments import many_classes


def test_a_line_for_each_epsilon_with_a_score_of_each_model(monkeypatch):
    monkeypatch.setattr(many_classes, "N_TRAIN", 2000)
    monkeypatch.setattr(many_classes, "EPSILONS", (1.0,))
    (line,) = many_classes.lines([("long", 16, 4, 0.5)])
    start, scores = line.strip("| ").split(" | ")[:5], line.strip("| ").split(" | ")[5:]
    assert start[:4] == ["long", "16", "4", "1"]
    assert len(scores) == len(many_classes.MODELS)
    assert all(float(score) > 60.0 for score in scores)
