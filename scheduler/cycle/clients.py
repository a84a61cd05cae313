"""The API clients that wiring composes and the loops share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.dispatcher.dispatch import Dispatcher
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.meta import View
from services.client.client import Client
from services.client.informer import Informer
from services.client.leases import Elector
from services.client.recorder import Recorder


@dataclass(frozen=True)
class Clients:
    """The clients of the loops.

    `others`: informers of the kinds that plugins read. `elector`: set when replicas elect a leader.
    """

    client: Client
    pods: Informer[Pod]
    nodes: Informer[Node]
    others: Mapping[type[View], Informer[Any]]
    recorder: Recorder
    dispatcher: Dispatcher
    elector: Elector | None = None
