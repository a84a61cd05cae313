"""The claim controller's process."""

import services.runtime.lean  # noqa: F401, I001  before the others

import importlib

from claim_controller.config import ClaimControllerConfig
from claim_controller.wiring import build
from services.runtime.process import main


def load() -> None:
    """Import what the controller opens while it starts."""
    importlib.import_module("services.client.rpc")


if __name__ == "__main__":
    main("claim-controller", ClaimControllerConfig, build)
