"""Certificates: the record behind a privacy claim, and the independent check of the claim."""

from dpglm.certificate.certificate import Certificate, CertifiedPart, certify, model_digest
from dpglm.certificate.statement import PublicFact, Spending
from dpglm.certificate.verify import Verification, verify

__all__ = [
    "Certificate",
    "CertifiedPart",
    "PublicFact",
    "Spending",
    "Verification",
    "certify",
    "model_digest",
    "verify",
]
