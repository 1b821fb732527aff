"""Certificates, model files, plots and pages of fits."""

from dpglm.certificate.certificate import Certificate, certify, model_digest
from dpglm.certificate.statement import PublicFact, Spending
from dpglm.certificate.verify import Verification, verify
from dpglm.guidance.expectation import Guidance, guidance
from dpglm.report.model_file import LinearModel, load_model, save_model

__all__ = [
    "Certificate",
    "Guidance",
    "LinearModel",
    "PublicFact",
    "Spending",
    "Verification",
    "certify",
    "guidance",
    "load_model",
    "model_digest",
    "save_model",
    "verify",
]
