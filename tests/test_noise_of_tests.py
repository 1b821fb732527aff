"""Noise in tests is the same each time."""

import os
import random
import zlib

import numpy as np
import pytest

from dpglm.privacy.noise import SystemNoise


def test_noise_follows_from_the_name_of_the_test(request, monkeypatch):
    if request.config.getoption("--system-noise"):
        pytest.skip("noise comes from the operating system")
    bits = np.random.PCG64(zlib.crc32(request.node.nodeid.encode()))
    assert np.array_equal(SystemNoise().words(3), bits.random_raw(3))
    monkeypatch.setattr(os, "urandom", bytes)
    assert not SystemNoise().words(3).any()


def test_unseeded_generators_follow_from_the_name(request):
    if request.config.getoption("--system-noise"):
        pytest.skip("seeds come from the operating system")
    expected = random.Random(zlib.crc32(request.node.nodeid.encode())).getrandbits(128)
    found = np.random.default_rng().normal(size=3)
    assert np.array_equal(found, np.random.default_rng(expected).normal(size=3))
    assert not np.array_equal(found, np.random.default_rng().normal(size=3))
