"""The API server as a process."""

import services.runtime.lean  # noqa: F401, I001  before the others

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.wiring import build
from services.runtime.process import main

if __name__ == "__main__":
    main("apiserver", ApiServerConfig, build)
