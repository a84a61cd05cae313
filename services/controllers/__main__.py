"""The controller manager's process."""

from services.controllers.config import ControllersConfig
from services.controllers.wiring import build
from services.runtime.process import main

if __name__ == "__main__":
    main("controllers", ControllersConfig, build)
