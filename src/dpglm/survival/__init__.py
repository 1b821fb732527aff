"""Survival: hazards by intervals from a regression, and private Kaplan-Meier curves."""

from dpglm.survival.hazards import PersonPeriods as PersonPeriods
from dpglm.survival.hazards import SurvivalCurve as SurvivalCurve
from dpglm.survival.hazards import person_period as person_period
from dpglm.survival.hazards import survival_curve as survival_curve
from dpglm.survival.kaplan_meier import KaplanMeier as KaplanMeier
from dpglm.survival.kaplan_meier import kaplan_meier as kaplan_meier

__all__ = [
    "KaplanMeier",
    "PersonPeriods",
    "SurvivalCurve",
    "kaplan_meier",
    "person_period",
    "survival_curve",
]
