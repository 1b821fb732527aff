"""Certificates, model files, plots and pages of fits."""

from dpglm.certificate.certificate import Certificate, certify, model_digest
from dpglm.certificate.statement import PublicFact, Spending
from dpglm.certificate.verify import Verification, verify
from dpglm.guidance import Guidance, guidance
from dpglm.report.model_file import LinearModel, load_model, save_model
from dpglm.report.monitoring import Drift, Monitoring, Shift, compare

__all__ = [
    "Certificate",
    "Drift",
    "Guidance",
    "LinearModel",
    "Monitoring",
    "PublicFact",
    "Shift",
    "Spending",
    "Verification",
    "certify",
    "compare",
    "guidance",
    "load_model",
    "model_digest",
    "save_model",
    "verify",
]
