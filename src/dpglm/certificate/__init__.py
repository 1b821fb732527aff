"""Certificates: every number that a claim rests on, and the independent check of the claim."""

from dpglm.certificate.certificate import Certificate, PublicFact, certify, model_digest
from dpglm.certificate.statement import Spending
from dpglm.certificate.verify import Verification, verify

__all__ = [
    "Certificate",
    "PublicFact",
    "Spending",
    "Verification",
    "certify",
    "model_digest",
    "verify",
]
