"""The controller manager's process."""

import services.runtime.lean  # noqa: F401, I001  before the others

import importlib

from services.controllers.config import ControllersConfig
from services.controllers.wiring import build, registered_controllers
from services.runtime.process import main


def load() -> None:
    """Import what a manager opens while it starts."""
    importlib.import_module("services.client.rpc")
    registered_controllers()


if __name__ == "__main__":
    main("controllers", ControllersConfig, build)
