"""
Survival of people
===================

A discrete-time hazard model of a person-period table, where all rows of a person are protected.
"""

# %%
# Follow-up of 12,000 generated patients, half of them treated, for up to 12 months: an event ends
# it early, or a patient leaves the study. Treatment lowers the odds of an event in a month by 40 %;
# they rise with age.

import numpy as np

import dpglm
from dpglm import LogisticRegression

rng = np.random.default_rng(0)
n_persons, n_months = 12_000, 12
treated, age = rng.integers(0, 2, n_persons), rng.uniform(40.0, 80.0, n_persons)
months = np.arange(1, n_months + 1)


def hazard(month, treated, age):
    """Probability of an event in a month, of those who have had none."""
    log_odds = -3.3 + 0.8 * np.exp(-month / 3.0) + np.log(0.6) * treated + 0.03 * (age - 60.0)
    return 1.0 / (1.0 + np.exp(-log_odds))


of_persons = hazard(months, treated[:, np.newaxis], age[:, np.newaxis])
event = rng.uniform(size=of_persons.shape) < of_persons
left = rng.uniform(size=of_persons.shape) < 0.01
last = np.where((event | left).any(axis=1), (event | left).argmax(axis=1), n_months - 1)

# %%
# One row for each person and month under observation. The likelihood of these rows, with the event
# as target, is that of the survival times: logistic regression estimates the hazard.

person, month = np.nonzero(np.arange(n_months) <= last[:, np.newaxis])
table = {
    "month": months[month],
    "arm": np.where(treated[person] == 1, "treated", "control"),
    "age": age[person],
    "event": np.where(event[person, month], "yes", "no"),
}
print(f"{len(person)} rows of {n_persons} persons, {np.sum(event[person, month])} events")

# %%
# The public facts are the length of the study, its arms, and the admitted ages.

schema = {
    "columns": {
        "month": {"type": "numeric", "low": 1, "high": 12},
        "arm": {"type": "categorical", "categories": ["control", "treated"]},
        "age": {"type": "numeric", "low": 40, "high": 80},
    },
    "target": {"name": "event", "type": "binary", "classes": ["no", "yes"]},
    "provenance": "the protocol of the study",
}

# %%
# ``groups`` gives the person id of each row. The protected unit is then a person with the whole
# follow-up, at the stated epsilon. A fit of rows would protect a person with 12 rows only at 12
# times this epsilon.

model = dpglm.from_formula(
    "event ~ bs(month, df=4) + C(arm) + age",
    schema,
    LogisticRegression(C=np.inf, inference=True),
    epsilon=1.0,
).fit(table, groups=person)
print(model.privacy_.statement().partition("\n\n")[0])

# %%
# The odds ratio of treatment and of ten more years, with intervals for sampling and privacy noise.
# Under the model, months are independent as long as a person has had no event. If this may fail,
# for example because people differ in frailty, use ``inference="robust"``.

inference = model.inference_
for name, factor in (("arm[treated]", 1.0), ("age", 10.0)):
    place = next(i for i, one in enumerate(inference.names) if name.partition("[")[0] in one)
    odds = np.exp(factor * np.array([inference.params[place], *inference.conf_int()[place]]))
    print(
        f"{inference.names[place]}, by {factor:g}: {odds[0]:.2f} ({odds[1]:.2f} to {odds[2]:.2f})"
    )

# %%
# Hazards and survival of people of 60 years; the true values are dashed.

import matplotlib.pyplot as plt

figure, (left_axes, right_axes) = plt.subplots(1, 2, figsize=(8, 3.2))
for arm, colour in (("control", "C0"), ("treated", "C1")):
    patient = {
        "month": months,
        "arm": np.full(n_months, arm),
        "age": np.full(n_months, 60.0),
    }
    found = model.predict_proba(patient)[:, 1]
    low, high = inference.prediction_interval(patient).T
    true = hazard(months, float(arm == "treated"), 60.0)
    left_axes.fill_between(months, 100 * low, 100 * high, alpha=0.2, linewidth=0, color=colour)
    left_axes.plot(months, 100 * found, color=colour)
    left_axes.plot(months, 100 * true, "--", color=colour, linewidth=1)
    for values, style, label in ((found, "-", arm), (true, "--", None)):
        survival = np.concatenate([[1.0], np.cumprod(1.0 - values)])
        right_axes.step(
            [0, *months], 100 * survival, style, where="post", color=colour, label=label
        )
left_axes.set(xlabel="month", ylabel="hazard, % in a month", ylim=(0, None))
right_axes.set(xlabel="month", ylabel="without an event, %", ylim=(0, 103))
right_axes.legend(frameon=False, loc="lower left")
figure.tight_layout()
plt.show()
