"""The process that serves kube-scheduler-simulator's HTTP API."""

import services.runtime.lean  # noqa: F401, I001  before the others

from services.runtime.process import main
from lab.simulator.config import SimulatorApiConfig
from lab.simulator.wiring import build

if __name__ == "__main__":
    main("simulator-api", SimulatorApiConfig, build)
