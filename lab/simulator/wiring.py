"""Construction of the simulator API from its parts."""

from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from lab.simulator import sources
from lab.simulator.config import SimulatorApiConfig
from lab.simulator.extender_proxy import ExtenderProxy
from lab.simulator.resources import Resources
from lab.simulator.schedulerconfig import SchedulerConfiguration
from lab.simulator.server import SimulatorApi, token_in
from lab.simulator.unhosted_nodes import UnhostedNodes
from scheduler.extenders.http import HttpTransport
from services.api.seams import Seams
from services.client.client import Client
from services.runtime.config import EXIT_USAGE, StartError


def build(config: SimulatorApiConfig, seams: Seams) -> SimulatorApi:
    """Return the API, ready to run. Raises: StartError."""
    if not config.data_dir:
        raise StartError("--data-dir: want a directory, for what the mesh was when it started", EXIT_USAGE)
    api = seams.transport.api()
    client = Client(api, seams.clock, seams.random, field_manager="simulator")
    configuration = None
    if config.scheduler_config:
        path = Path(config.scheduler_config)
        configuration = SchedulerConfiguration(path, Path(config.mesh_dir), config.scheduler, seams.switches)
    resources = Resources(client, configuration, Path(config.data_dir) / "start.json", seams.clock)
    proxy = ExtenderProxy(client, configuration, HttpTransport(seams.tracer))
    token = "" if config.is_open else token_in(Path(config.token_file))
    unhosted = UnhostedNodes(api, client, seams.clock, seams.random)
    return SimulatorApi(
        config, api, configuration, resources, proxy, token, (unhosted.run, *_sources(config, seams, client))
    )


def _sources(config: SimulatorApiConfig, seams: Seams, client: Client) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """Return what fills the mesh while the API serves."""
    tasks: list[Callable[[], Coroutine[Any, Any, None]]] = []
    if config.import_kubeconfig:
        tasks.append(partial(sources.import_once, client, config.import_kubeconfig, config.import_selector))
    if config.sync_kubeconfig:
        tasks.append(partial(sources.follow, client, config.sync_kubeconfig))
    if config.replay:
        tasks.append(partial(sources.replay, client, seams.clock, config.replay))
    return tasks
