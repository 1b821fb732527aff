"""Networks of torch under differential privacy (extra ``torch``)."""

from dpglm.torch.optimizer import D2P2Optimizer, network_digest, plan_network

__all__ = ["D2P2Optimizer", "network_digest", "plan_network"]
