"""The API server as a process."""

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.wiring import build
from services.runtime.process import main

if __name__ == "__main__":
    main("apiserver", ApiServerConfig, build)
