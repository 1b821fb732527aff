"""Networks of torch under differential privacy (extra ``torch``)."""

from dpglm.torch.optimizer import D2P2Optimizer as D2P2Optimizer
from dpglm.torch.optimizer import network_digest as network_digest
from dpglm.torch.optimizer import plan_network as plan_network
