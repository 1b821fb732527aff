"""Draw the picture of the README: three curves of a private additive model of Adult."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

from dpglm import AdditiveClassifier
from dpglm.datasets import load_adult

FIGURE = Path(__file__).resolve().parents[1] / "figures" / "adult_curves.png"
COLUMNS = {
    "age": "age in years",
    "education-num": "education, in steps",
    "hours-per-week": "hours per week",
}


def main():
    """Fit the model and save the picture."""
    adult = load_adult()
    model = AdditiveClassifier(adult.schema, epsilon=1.0, delta=1e-5)
    shapes = model.fit(adult.data, adult.target).shapes_
    figure, panels = plt.subplots(1, 3, figsize=(9, 2.8), sharey=True, layout="constrained")
    for panel, (name, label) in zip(panels, COLUMNS.items(), strict=True):
        shape = shapes[name]
        panel.axhline(0.0, color="0.6", linewidth=0.8)
        panel.plot(shape.points[0], shape.values[0], marker="o", color="tab:blue")
        panel.fill_between(shape.points[0], *shape.band[0].T, alpha=0.25)
        panel.set_xlabel(label)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("log-odds of > $50,000")
    figure.savefig(FIGURE, dpi=110)


if __name__ == "__main__":
    main()
