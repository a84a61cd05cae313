"""Build the controller manager, which runs the controllers in the folders beside this file."""

import contextlib
import importlib
import pkgutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import services.controllers
from services.api.seams import Component, Seams
from services.controllers.config import ControllersConfig
from services.kwok.documents import STAGE
from services.reconcile.controller import Registration, Sign
from services.runtime.config import EXIT_CONFIG, EXIT_USAGE, StartError
from services.runtime.manager import Beside, Manager

LEASE = "kube-controller-manager"


@cache
def registered_controllers() -> dict[str, Registration]:
    """Return all controllers by name, in start order; every folder is one controller.

    Raises: ValueError when two folders use one name.
    """
    registrations: dict[str, Registration] = {}
    for folder in (info.name for info in pkgutil.iter_modules(services.controllers.__path__) if info.ispkg):
        offered: Registration = importlib.import_module(f"services.controllers.{folder}.controller").CONTROLLER
        if registrations.setdefault(offered.name, offered) is not offered:
            raise ValueError(f"two folders in controllers/ offer {offered.name}")
    return dict(sorted(registrations.items(), key=lambda item: (item[1].start_order, item[0])))


def choose_registrations(names: tuple[str, ...]) -> list[Registration]:
    """Return the controllers to run, in start order.

    Raises: StartError naming an unknown controller.
    """
    known = registered_controllers()
    for name in names:
        if name != "*" and name.removeprefix("-") not in known:
            raise StartError(f"no controller {name.removeprefix('-')!r}; there are: {', '.join(known)}", EXIT_USAGE)
    is_all = "*" in names or all(name.startswith("-") for name in names)
    return [
        each
        for name, each in known.items()
        if f"-{name}" not in names and (name in names or (is_all and each.by_default))
    ]


def without_rest() -> tuple[str, ...]:
    """Return the flag value that selects the controllers of a mesh without REST."""
    return ("*", *(f"-{name}" for name, each in registered_controllers().items() if each.is_for_rest))


def _signer(config: ControllersConfig) -> Sign | None:
    """Return what signs with the configured authority, or None. Raises: StartError naming what cannot be read."""
    certificate, key = config.cluster_signing_cert_file, config.cluster_signing_key_file
    if not certificate and not key:
        return None
    # Only here: a manager that signs nothing need not load what reads certificates.
    from services.runtime.certificates import authority_of

    try:
        authority = authority_of(Path(certificate), Path(key))
    except (OSError, ValueError) as error:
        raise StartError(f"--cluster-signing-cert-file and -key-file: {error}", EXIT_CONFIG) from None

    def sign(request: bytes, usages: Sequence[str], seconds: float, wall_s: float) -> bytes:
        nonlocal authority
        # The authority may have been changed; files that cannot be used leave the one there was.
        with contextlib.suppress(OSError, ValueError):
            authority = authority_of(Path(certificate), Path(key))
        return authority.issue(request, usages, timedelta(seconds=seconds), now=datetime.fromtimestamp(wall_s, UTC))

    return sign


def build(config: ControllersConfig, seams: Seams) -> Component:
    """Return the component that runs the chosen controllers over shared informers."""
    switches = seams.switches
    sign = _signer(config)
    controllers = [
        each.build(switches) if sign is None or each.build_signing is None else each.build_signing(switches, sign)
        for each in choose_registrations(config.controllers)
        if each.is_wanted(switches)
    ]
    elector = config.elector(seams, LEASE)
    return Manager(
        controllers,
        seams,
        elector=elector,
        follows_definitions=config.custom_resources,
        beside=_stage_player(config, seams),
    )


def _stage_player(config: ControllersConfig, seams: Seams) -> Sequence[Beside]:
    """Return what moves objects by KWOK's Stages, nothing where there are none. Raises: StartError."""
    if not config.stages and not config.enable_crds:
        return ()
    # Only here: templates and expressions are large, and few meshes have stages.
    from services.controllers.stage_player import StagePlayer
    from services.kwok.definitions import choose_kinds
    from services.kwok.stages.document import StageError, load_stages

    try:
        follows = STAGE in choose_kinds(config.enable_crds)
    except ValueError as error:
        raise StartError(f"--enable-crds {error}", EXIT_USAGE) from None
    try:
        stages = tuple(stage for stage in load_stages(config.stages) if not stage.is_of_kubelets)
    except StageError as error:
        raise StartError(f"--stages {error}", EXIT_USAGE) from None
    return (StagePlayer(seams, stages, seed=config.stages_seed, follows_objects=follows),) if stages or follows else ()
