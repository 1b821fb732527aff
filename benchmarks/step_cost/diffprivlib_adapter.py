"""diffprivlib: whole fits only, as it does not offer private gradients."""

from benchmarks.peers import diffprivlib_adapter as peer
from benchmarks.step_cost.protocol import Adapter, serve

DIFFPRIVLIB = Adapter(peer.DIFFPRIVLIB.version, fits={"diffprivlib": peer.fit})

if __name__ == "__main__":
    serve(DIFFPRIVLIB)
