"""`python -m kubelet.deviceplugin.emulated`: a process that is one node's plugin for one resource."""

import services.runtime.lean  # noqa: F401, I001  before the others

from kubelet.deviceplugin.emulated.serving import PluginConfig
from kubelet.deviceplugin.emulated.serving import build
from services.runtime.process import main

if __name__ == "__main__":
    main("kubelet.deviceplugin.emulated", PluginConfig, build)
