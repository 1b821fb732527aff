"""A table with everything: missing cells, unlisted ones, values outside the bounds."""

from __future__ import annotations

import numpy as np
import pytest

from dpglm.tables.schema import Schema

N = 3000


@pytest.fixture(scope="session")
def schema():
    return Schema.from_dict(
        {
            "columns": {
                "age": {"type": "numeric", "low": 18, "high": 90},
                "income": {"type": "numeric", "low": 0, "high": 100},
                "region": {"type": "categorical", "categories": ["north", "south", "west"]},
                "smoker": {"type": "categorical", "categories": ["no", "yes"]},
            },
            "target": {"name": "visits", "type": "count", "high": 15},
            "provenance": "a questionnaire",
        }
    )


@pytest.fixture(scope="session")
def table():
    rng = np.random.default_rng(0)
    age = rng.normal(45.0, 15.0, N).round()
    income = np.maximum(rng.normal(age - 20.0, 10.0), 0.0)
    region = rng.choice(["north", "south", "west", "east"], N, p=[0.5, 0.3, 0.15, 0.05])
    smoker = np.where(rng.uniform(size=N) < 0.4, "yes", "no").astype(object)
    smoker[rng.uniform(size=N) < 0.1] = None
    visits = rng.poisson(2.0, N)
    age[rng.uniform(size=N) < 0.05] = np.nan
    return {
        "age": age,
        "income": income,
        "region": region,
        "smoker": smoker,
        "visits": visits,
    }
