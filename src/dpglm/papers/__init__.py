"""Solvers with the settings that the papers' theorems ask for."""

from dpglm.papers.arora2022 import (
    Arora2022GridSearch,
    Arora2022Lipschitz,
    Arora2022OutputPerturbation,
    Arora2022Smooth,
)
from dpglm.papers.d2p2_and_sun2023 import d2p2_theorems, dpsgd_f_theoretical
from dpglm.papers.song2021 import Song2021, Song2021NonConvex
from dpglm.papers.wang2017 import (
    Wang2017MirrorDescent,
    Wang2017NonConvex,
    Wang2017PolyakLojasiewicz,
    Wang2017SVRG,
    Wang2017SVRGPlusPlus,
)

__all__ = [
    "Arora2022GridSearch",
    "Arora2022Lipschitz",
    "Arora2022OutputPerturbation",
    "Arora2022Smooth",
    "Song2021",
    "Song2021NonConvex",
    "Wang2017MirrorDescent",
    "Wang2017NonConvex",
    "Wang2017PolyakLojasiewicz",
    "Wang2017SVRG",
    "Wang2017SVRGPlusPlus",
    "d2p2_theorems",
    "dpsgd_f_theoretical",
]
