"""`python -m kubelet`: a process that hosts emulated nodes."""

import services.runtime.lean  # noqa: F401, I001  before the others

import importlib

from kubelet.config import KubeletConfig
from kubelet.wiring import build
from services.runtime.process import main


def load() -> None:
    """Import what a host opens while it starts."""
    for name in ("kubelet.agent.streams", "services.client.rpc", "services.runtime.serving_tls"):
        importlib.import_module(name)


if __name__ == "__main__":
    main("kubelet", KubeletConfig, build)
