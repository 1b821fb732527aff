"""dpglm with default settings under the guarantee that diffprivlib gives."""

from benchmarks.peers.dpglm_adapter import DPGLM_PURE
from benchmarks.peers.protocol import serve

if __name__ == "__main__":
    serve(DPGLM_PURE)
