"""`keplab component`: run one component of a mesh, as a container or a pod starts it."""

import os
import socket
import sys
from collections.abc import Sequence

import click

from services.runtime.components import MODULES
from services.runtime.config import PREFIX

STARTED_ALONE = ("apiserver", "scheduler", "controllers", "claim-controller", "kubelet", "credentials")

EPILOG = """\
\b
Examples:
  keplab component scheduler --server apiserver:7443 --token-file token.json
  keplab component kubelet --slots kubelet- --nodes 2 --data-dir /data
  keplab component kubelet --help
"""


def arguments(component: str, given: Sequence[str], hostname: str, address: str) -> list[str]:
    """Return the component's flags.

    A kubelet host also gets the name and address of its container, unless they are given.
    """
    own = {"--name": f"kubelet/{hostname}", "--address": address} if component == "kubelet" else {}
    is_given = {
        flag: f"{PREFIX}{flag.lstrip('-').upper()}" in os.environ
        or any(word.partition("=")[0] == flag for word in given)
        for flag in own
    }
    return [*(word for flag, value in own.items() if not is_given[flag] for word in (flag, value)), *given]


@click.command("component", epilog=EPILOG, context_settings={"allow_interspersed_args": False})
@click.argument("name", type=click.Choice(STARTED_ALONE))
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def component(name: str, flags: tuple[str, ...]) -> None:
    """Run one component of a mesh, as in a container.

    The component runs until it is stopped; `keplab component NAME --help` lists its flags. Every flag is an environment
    variable as well, KEPLAB_FLAG_NAME. `keplab up` starts and supervises all components; this command is for containers
    and pods, which have a supervisor of their own. `credentials` writes the credentials of all components and ends.
    """
    hostname = socket.gethostname()
    address = socket.gethostbyname(hostname) if name == "kubelet" else ""
    words = arguments(name, flags, hostname, address)
    os.execv(sys.executable, [sys.executable, "-m", MODULES[name], *words])
