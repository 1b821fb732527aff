"""Noisy gradient descent with the settings that the papers ask for."""

from dpglm.papers.arora2022 import Arora2022Lipschitz, Arora2022Smooth
from dpglm.papers.song2021 import Song2021, Song2021NonConvex
from dpglm.papers.sun2023 import dpsgd_f_theoretical
from dpglm.papers.wang2017 import Wang2017NonConvex, Wang2017PolyakLojasiewicz

__all__ = [
    "Arora2022Lipschitz",
    "Arora2022Smooth",
    "Song2021",
    "Song2021NonConvex",
    "Wang2017NonConvex",
    "Wang2017PolyakLojasiewicz",
    "dpsgd_f_theoretical",
]
