"""`python -m kubelet.device_plugin`: a process that is one node's plugin for one resource."""

import services.runtime.lean  # noqa: F401, I001  before the others

from kubelet.device_plugin.config import PluginConfig
from kubelet.device_plugin.wiring import build
from services.runtime.process import main

if __name__ == "__main__":
    main("kubelet.device_plugin", PluginConfig, build)
