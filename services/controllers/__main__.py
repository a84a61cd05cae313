"""The controller manager's process."""

import services.runtime.lean  # noqa: F401, I001  before the others

from services.controllers.config import ControllersConfig
from services.controllers.wiring import build
from services.runtime.process import main

if __name__ == "__main__":
    main("controllers", ControllersConfig, build)
