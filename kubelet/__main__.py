"""`python -m kubelet`: a process that hosts emulated nodes."""

import services.runtime.lean  # noqa: F401, I001  before the others

from kubelet.config import KubeletConfig
from kubelet.wiring import build
from services.runtime.process import main

if __name__ == "__main__":
    main("kubelet", KubeletConfig, build)
