"""Hard instances: data from the papers' proofs of lower bounds."""

from experiments.papers.hard_instance import HardInstance
from experiments.papers.hard_instances import (
    biased_labels,
    biased_responses,
    fingerprint_labels,
    two_clusters,
)

__all__ = [
    "HardInstance",
    "biased_labels",
    "biased_responses",
    "fingerprint_labels",
    "two_clusters",
]
