"""`python -m kubelet.dra.emulated`: a process that is one DRA driver of one node."""

import services.runtime.lean  # noqa: F401, I001  before the others

from kubelet.dra.emulated.serving import DriverConfig
from kubelet.dra.emulated.serving import build
from services.runtime.process import main

if __name__ == "__main__":
    main("kubelet.dra.emulated", DriverConfig, build)
