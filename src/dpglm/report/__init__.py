"""Certificates, model files, plots and pages of fits."""

from dpglm.certificate.certificate import Certificate as Certificate
from dpglm.certificate.certificate import PublicFact as PublicFact
from dpglm.certificate.certificate import certify as certify
from dpglm.certificate.certificate import model_digest as model_digest
from dpglm.certificate.statement import Spending as Spending
from dpglm.certificate.verify import Verification as Verification
from dpglm.certificate.verify import verify as verify
from dpglm.guidance import Guidance as Guidance
from dpglm.guidance import guidance as guidance
from dpglm.report.model_file import LinearModel as LinearModel
from dpglm.report.model_file import load_model as load_model
from dpglm.report.model_file import save_model as save_model
from dpglm.report.monitoring import Drift as Drift
from dpglm.report.monitoring import Monitoring as Monitoring
from dpglm.report.monitoring import Shift as Shift
from dpglm.report.monitoring import compare as compare
