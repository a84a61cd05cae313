"""The claim controller's process."""

import services.runtime.lean  # noqa: F401, I001  before the others

from claim_controller.config import ClaimControllerConfig
from claim_controller.wiring import build
from services.runtime.process import main

if __name__ == "__main__":
    main("claim-controller", ClaimControllerConfig, build)
