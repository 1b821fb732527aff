"""Certificates: the record behind a privacy claim, and the independent check of the claim."""

from dpglm.certificate.certificate import Certificate as Certificate
from dpglm.certificate.certificate import CertifiedPart as CertifiedPart
from dpglm.certificate.certificate import PublicFact as PublicFact
from dpglm.certificate.certificate import certify as certify
from dpglm.certificate.certificate import model_digest as model_digest
from dpglm.certificate.statement import Spending as Spending
from dpglm.certificate.verify import Verification as Verification
from dpglm.certificate.verify import verify as verify
