"""Noise in tests: the same each time, so that a statistical test passes or fails for good."""

import functools
import os
import random
import threading
import zlib
from unittest import mock

import pytest

# The process that distributes tests runs none: only fixtures import what tests need.


def pytest_addoption(parser):
    """Let tests draw noise as fits do."""
    parser.addoption(
        "--system-noise",
        action="store_true",
        help="draw noise from the operating system, as fits do, and not from the test's name",
    )


@pytest.fixture(scope="session", autouse=True)
def _data_sets_are_parsed_once():
    """Each caller gets arrays of its own."""
    from dpglm.datasets import tables

    parsed = functools.cache(tables.read_csv)

    def copied(name):
        return {column: values.copy() for column, values in parsed(name).items()}

    with mock.patch.object(tables, "read_csv", copied):
        yield


@pytest.fixture(autouse=True)
def _noise_of_the_test(request, monkeypatch):
    """Bits of ``SystemNoise``, and seeds of NumPy's unseeded generators, follow from the name.

    Forked processes, and tests that put something in the place of ``os.urandom``, draw as fits do.
    """
    if request.config.getoption("--system-noise"):
        return
    import numpy as np

    from dpglm.privacy.noise import SystemNoise

    seed = zlib.crc32(request.node.nodeid.encode())
    monkeypatch.setattr(np.random.bit_generator, "randbits", random.Random(seed).getrandbits)
    bits = np.random.PCG64(seed)
    lock, process, urandom, words = threading.Lock(), os.getpid(), os.urandom, SystemNoise.words

    @functools.wraps(words)
    def words_of_the_test(self, count):
        if os.getpid() != process or os.urandom is not urandom:
            return words(self, count)
        with lock:
            return np.asarray(bits.random_raw(count), dtype=np.uint64)

    monkeypatch.setattr(SystemNoise, "words", words_of_the_test)
