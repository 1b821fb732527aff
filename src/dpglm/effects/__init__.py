"""The average effect of a treatment, doubly robust, from one budget."""

from dpglm.effects.effect import AverageEffect as AverageEffect
from dpglm.effects.effect import Contrast as Contrast
from dpglm.effects.effect import ate as ate
from dpglm.effects.effect import load_effect as load_effect
