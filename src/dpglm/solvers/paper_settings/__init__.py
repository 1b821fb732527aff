"""Noisy gradient descent with the settings that the papers ask for."""

from dpglm.solvers.paper_settings.arora2022 import Arora2022Lipschitz, Arora2022Smooth
from dpglm.solvers.paper_settings.song2021 import Song2021
from dpglm.solvers.paper_settings.sun2023 import dpsgd_f, dpsgd_f_theoretical
from dpglm.solvers.paper_settings.wang2017 import Wang2017NonConvex, Wang2017PolyakLojasiewicz

__all__ = [
    "Arora2022Lipschitz",
    "Arora2022Smooth",
    "Song2021",
    "Wang2017NonConvex",
    "Wang2017PolyakLojasiewicz",
    "dpsgd_f",
    "dpsgd_f_theoretical",
]
