"""Solvers with the settings that the papers' theorems ask for."""

from dpglm.papers.arora2022 import Arora2022GridSearch as Arora2022GridSearch
from dpglm.papers.arora2022 import Arora2022Lipschitz as Arora2022Lipschitz
from dpglm.papers.arora2022 import Arora2022OutputPerturbation as Arora2022OutputPerturbation
from dpglm.papers.arora2022 import Arora2022Smooth as Arora2022Smooth
from dpglm.papers.d2p2_and_sun2023 import d2p2_theorems as d2p2_theorems
from dpglm.papers.d2p2_and_sun2023 import dpsgd_f_theoretical as dpsgd_f_theoretical
from dpglm.papers.song2021 import Song2021 as Song2021
from dpglm.papers.song2021 import Song2021NonConvex as Song2021NonConvex
from dpglm.papers.wang2017 import Wang2017MirrorDescent as Wang2017MirrorDescent
from dpglm.papers.wang2017 import Wang2017NonConvex as Wang2017NonConvex
from dpglm.papers.wang2017 import Wang2017PolyakLojasiewicz as Wang2017PolyakLojasiewicz
from dpglm.papers.wang2017 import Wang2017SVRG as Wang2017SVRG
from dpglm.papers.wang2017 import Wang2017SVRGPlusPlus as Wang2017SVRGPlusPlus
