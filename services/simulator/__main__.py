"""The process that serves kube-scheduler-simulator's HTTP API."""

import services.runtime.lean  # noqa: F401, I001  before the others

from services.runtime.process import main
from services.simulator.config import SimulatorApiConfig
from services.simulator.wiring import build

if __name__ == "__main__":
    main("simulator-api", SimulatorApiConfig, build)
