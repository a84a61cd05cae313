"""The API, put together."""

from pathlib import Path

from scheduler.extenders.http import HttpTransport
from services.api.seams import Seams
from services.client.client import Client
from services.runtime.config import EXIT_USAGE, StartError
from services.simulator.config import SimulatorApiConfig
from services.simulator.extender_proxy import ExtenderProxy
from services.simulator.resources import Resources
from services.simulator.schedulerconfig import SchedulerConfiguration
from services.simulator.server import SimulatorApi, token_in
from services.simulator.unhosted import UnhostedNodes


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
    proxy = ExtenderProxy(client, configuration, HttpTransport())
    token = "" if config.is_open else token_in(Path(config.token_file))
    unhosted = UnhostedNodes(api, client, seams.clock, seams.random)
    return SimulatorApi(config, api, configuration, resources, proxy, token, (unhosted.run,))
