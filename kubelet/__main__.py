"""`python -m kubelet`: a process that hosts emulated nodes."""

from kubelet.config import KubeletConfig
from kubelet.wiring import build
from services.runtime.process import main

if __name__ == "__main__":
    main("kubelet", KubeletConfig, build)
