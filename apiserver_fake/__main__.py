"""The API server as a process."""

import services.runtime.lean  # noqa: F401, I001  before the others

import importlib

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.registry.strategy import strategy_for, subresource
from apiserver_fake.wiring import build
from services.runtime.process import main
from services.runtime.roles import controller_roles


def load() -> None:
    """Import what a server opens while it starts."""
    for name in ("grpc.server", "rest.server", "rest.zpages"):
        importlib.import_module(f"apiserver_fake.{name}")
    importlib.import_module("services.runtime.serving_tls")
    strategy_for("pods")
    subresource("pods", "status")
    controller_roles()


if __name__ == "__main__":
    main("apiserver", ApiServerConfig, build)
