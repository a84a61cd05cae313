"""Construction of the component: from configuration and seams to a running API server."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.extensions.register import ALL, extensions_of
from apiserver_fake.registry.accounts import ServiceAccounts
from apiserver_fake.registry.authorization.access import Access
from apiserver_fake.registry.authorization.authentication import TokenFile, read_tokens
from apiserver_fake.registry.authorization.authorizer import add_roles
from apiserver_fake.registry.switches import ApiServerSwitches
from apiserver_fake.server import ApiServer
from apiserver_fake.storage.journal import DiskJournal, Journal
from apiserver_fake.storage.memory import end_for_memory
from apiserver_fake.storage.store import Store
from services.api.features.idle_switches import UNBINDS
from services.api.identity import ADMIN
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Api
from services.runtime.config import EXIT_CONFIG, EXIT_USAGE, StartError
from services.runtime.roles import read_role
from services.telemetry import kernel
from services.telemetry.metrics import Samples

if TYPE_CHECKING:
    from apiserver_fake.extensions.fairness.gate import FairDispatch
    from apiserver_fake.extensions.points import Definitions
    from apiserver_fake.registry.controlplane.server_endpoints import ServerEndpoints
    from services.runtime.serving_tls import ServingTls


GIVEN_BACK_S, GIVEN_BACK_BYTES = 30.0, 8 << 20
"""Minimum seconds between two releases of memory, and the bytes that must have left the window of changes since."""


class ApiServerComponent:
    """The API server with its two servers. `grpc_port` and `rest_port`: the listening ports once it is ready."""

    def __init__(self, config: ApiServerConfig, seams: Seams, server: ApiServer, names: Collection[str] = ALL) -> None:
        """Take the parts. `names`: the extensions that are on."""
        self._config, self._seams, self._names = config, seams, names
        self.server = server
        self.grpc_port: int | None = None
        self.rest_port: int | None = None
        self._is_listening = False
        # In a simulation there is no listener.
        self._tls = tls_of(config) if _has_servers(config) else None
        self._publishing: set[asyncio.Task[None]] = set()
        self._endpoints: ServerEndpoints | None = None

    async def run(self) -> None:
        """Recover the store, open the servers, serve until cancelled. Raises: StartError."""
        if _has_servers(self._config):
            _end_without_memory(asyncio.get_running_loop())
        async with asyncio.TaskGroup() as group:
            group.create_task(self.server.run())
            await self.server.wait_until_ready()
            async with AsyncExitStack() as servers:
                try:
                    await self._open(servers)
                    self._is_listening = True
                    await asyncio.Event().wait()
                finally:
                    self._is_listening = False
                    # First the watches, so that their streams end by themselves and the servers need not wait (W18).
                    self.server.hub.shut_down()

    async def _open(self, servers: AsyncExitStack) -> None:
        config, tls = self._config, self._tls
        if tls is not None:
            tls.on_reload = self._on_reload
            following = asyncio.create_task(tls.follow())
            servers.callback(following.cancel)
        if _has_servers(config):
            giving_back = asyncio.create_task(give_back(self.server.store))
            servers.callback(giving_back.cancel)
            if "fairness" in self._names:
                fairness = self.server.fairness = self.make_fairness()
                dividing = asyncio.create_task(fairness.run())
                servers.callback(dividing.cancel)
        if config.grpc_port is not None:
            from apiserver_fake.grpc.server import GrpcServer

            grpc = GrpcServer(self.server, self._seams.clock, tls if config.security == "strict" else None)
            self.grpc_port = await grpc.open(config.grpc_host, config.grpc_port)
            servers.push_async_callback(grpc.close)
        if config.rest_port is not None:
            # Only here: a simulation has no listener, and these are a third of the server.
            from apiserver_fake.rest import server as rest_server
            from apiserver_fake.rest.server import RestSettings
            from apiserver_fake.rest.streaming import kubelet_tls
            from apiserver_fake.rest.zpages import flags_of

            try:
                rest, self.rest_port = await rest_server.serve(
                    self.server,
                    config.rest_host,
                    config.rest_port,
                    clock=self._seams.clock,
                    tracer=self._seams.tracer,
                    settings=RestSettings(
                        config.rest_allowed_hosts, has_sessions=_unbinds(self._seams.switches), flags=flags_of(config)
                    ),
                    tls=tls,
                    kubelet_tls=kubelet_tls(
                        config.kubelet_client_certificate,
                        config.kubelet_client_key,
                        config.kubelet_certificate_authority,
                    ),
                )
                servers.push_async_callback(rest.aclose)
                if config.cluster_objects:
                    await self._make_cluster_objects(self.rest_port)
                    await self._keep_cluster_objects(servers)
            except OSError as error:
                why = error.strerror or str(error)
                text = f"cannot listen on {config.rest_host}:{config.rest_port}: {why}"
                raise StartError(text, EXIT_CONFIG) from None

    def make_fairness(self) -> "FairDispatch":
        """Return the priority and fairness of the server. Standard objects count as stored where none are stored."""
        from apiserver_fake.extensions.fairness.gate import FairDispatch
        from apiserver_fake.extensions.fairness.levels import CATCH_ALL, EXEMPT
        from apiserver_fake.registry.controlplane.cluster_objects import standing_objects

        config, server = self._config, self.server
        always = () if not config.cluster_objects else (EXEMPT, CATCH_ALL)
        suggested = [
            each
            for each in standing_objects()
            if each["kind"] in ("FlowSchema", "PriorityLevelConfiguration")
            and (not always or each["metadata"]["name"] in always)
        ]
        seats = config.max_requests_inflight + config.max_mutating_requests_inflight
        return FairDispatch(server.store, self._seams.clock, seats, suggested, server.api_for(ADMIN))

    def _on_reload(self) -> None:
        """Publish the authorities if they have changed."""
        assert self._tls is not None, "called by it"
        authority = self._tls.material.authorities.decode()
        if self.server.access.authority in ("", authority):
            return
        publishing = asyncio.create_task(self.server.change_authority(authority))
        self._publishing.add(publishing)
        publishing.add_done_callback(self._publishing.discard)

    async def _make_cluster_objects(self, port: int) -> None:
        from apiserver_fake.registry.controlplane.cluster_objects import (
            client_authority,
            ensure,
            own_service,
            standing_objects,
        )
        from apiserver_fake.registry.controlplane.server_endpoints import ServerEndpoints

        api, config, wall_s = self.server.api_for(ADMIN), self._config, self._seams.clock.wall()
        for document in standing_objects():
            await ensure(api, document, wall_s)
        host = "127.0.0.1" if config.rest_host in ("localhost", "0.0.0.0", "::", "") else config.rest_host
        if self.server.is_shared:
            life = f"{self._seams.random.getrandbits(64):016x}"
            self._endpoints = ServerEndpoints(self.server.store, api, self._seams.clock, host, port, life)
        else:
            for document in own_service([(host, port)]):
                await ensure(api, document, wall_s, is_current=True)
        if config.client_ca_file:
            await ensure(api, client_authority(_text_of(config.client_ca_file)), wall_s, is_current=True)

    async def _keep_cluster_objects(self, servers: AsyncExitStack) -> None:
        from apiserver_fake.registry.controlplane.service_ips import ServiceAddresses

        addresses = ServiceAddresses(self.server.store, self.server.api_for(ADMIN))
        await addresses.keep()
        runs = [addresses.run]
        if "aggregated" in self._names and (definitions := self.server.extensions.definitions()) is not None:
            runs.append(await self._register_services(definitions))
        if self._endpoints is not None:
            runs.append(self._endpoints.run)
        for run in runs:
            keeping = asyncio.create_task(run())
            servers.callback(keeping.cancel)

    async def _register_services(self, definitions: "Definitions") -> Callable[[], Coroutine[Any, Any, None]]:
        """Register the group versions of this server as APIServices; return what keeps them."""
        from apiserver_fake.extensions.aggregated.registration import ApiServiceController
        from apiserver_fake.rest.discovery import CREATED_ONLY, groups, is_served

        catalogue, clock = self.server.catalogue, self._seams.clock
        built_in = frozenset(
            (group, version)
            for group, versions in groups(catalogue).items()
            for version in versions
            if not all(each.schema for each in catalogue.served_versions.get((group, version), {}).values())
        ) | frozenset((each.group, each.version) for each in CREATED_ONLY)
        controller = ApiServiceController(
            self.server.store,
            self.server.api_for(ADMIN),
            clock,
            built_in,
            definitions.index,
            lambda *asked: is_served(catalogue, *asked),
        )
        await controller.register_built_in()
        return controller.run

    @property
    def is_ready(self) -> bool:
        """Whether the store is recovered and the servers are open."""
        return self._is_listening and self.server.is_ready

    def metrics(self) -> Samples:
        """Return the server's metrics."""
        return self.server.metrics()

    def reviews(self) -> Api | None:
        """Return the API that this process uses to authenticate callers, its own; None before recovery."""
        return self.server.api_for(ADMIN) if self.server.is_ready else None

    def certificates(self) -> list[dict[str, str]]:
        """Return the certificates that the servers use at present."""
        return [self._tls.loaded_files()] if self._tls is not None else []

    def ports(self) -> dict[str, int]:
        """Return the ports of the open servers."""
        found = {"grpc": self.grpc_port, "rest": self.rest_port}
        return {name: port for name, port in found.items() if port is not None}


async def give_back(store: Store) -> None:
    """Make the C library release memory that has left the window of changes or was packed, when it is worth it.

    Otherwise it keeps freed blocks between blocks in use, and a burst of Events would stay in memory for days.
    """
    before = 0
    while True:
        await asyncio.sleep(GIVEN_BACK_S)
        free = store.bytes_left + store.bytes_packed
        if free - before >= GIVEN_BACK_BYTES:
            before = free
            kernel.release_memory()


def _end_without_memory(loop: asyncio.AbstractEventLoop) -> None:
    """End the process when a callback finds no memory, whoever's it is."""
    before = loop.get_exception_handler()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), MemoryError):
            end_for_memory()
        if before is not None:
            before(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


def _unbinds(switches: Switches) -> bool:
    """Whether kubelets unbind pods: clients without that feature do not know the session of a kubelet."""
    own = switches.of(ApiServerSwitches)
    return own.pod_unbinding and own.on_reject in UNBINDS


def _text_of(path: str) -> str:
    return Path(path).read_text()


def tls_of(config: ApiServerConfig) -> "ServingTls | None":
    """Return the TLS settings of the REST endpoint, and with --security strict of gRPC; None for plain
    connections.

    Raises: StartError naming what is missing or cannot be used.
    """
    given = {
        "--tls-cert-file": config.tls_cert_file,
        "--tls-private-key-file": config.tls_private_key_file,
        "--client-ca-file": config.client_ca_file,
    }
    is_strict = config.security == "strict"
    certificate, key, client_authority = (Path(path) if path else None for path in given.values())
    if certificate is not None and key is not None:
        from services.runtime.serving_tls import ServingTls

        if is_strict and client_authority is None:
            raise StartError("--security strict without --client-ca-file", EXIT_USAGE)
        return ServingTls(certificate, key, client_authority)
    if set(given.values()) == {""} and not is_strict:
        return None
    missing = [flag for flag in ("--tls-cert-file", "--tls-private-key-file") if not given[flag]]
    given_flag = next((flag for flag, path in given.items() if path), "--security strict")
    raise StartError(f"{given_flag} without {' and '.join(missing)}", EXIT_USAGE)


def build(config: ApiServerConfig, seams: Seams, names: Collection[str] = ALL) -> ApiServerComponent:
    """Return the API server component; `names`: its extensions.

    Raises: StartError for an engine that does not exist, a bad token file or a bad role.
    """
    try:
        add_roles(read_role(Path(path)) for path in config.role)
    except ValueError as error:
        raise StartError(f"--role {error}") from None
    if config.max_requests_inflight + config.max_mutating_requests_inflight < 1:
        text = "--max-requests-inflight and --max-mutating-requests-inflight leave no request to be executed"
        raise StartError(text, EXIT_USAGE)
    tokens = read_tokens(Path(config.token_file)) if config.token_file else TokenFile()

    def address(namespace: str, service: str, port: int) -> tuple[str, int]:
        from apiserver_fake.registry.controlplane.service_addresses import address_of

        return address_of(server.store, namespace, service, port)

    access = _access(config)
    extensions = extensions_of(config, seams, access, address, names)
    server = ApiServer(seams, _journal(config, seams), config, tokens, access, extensions)
    return ApiServerComponent(config, seams, server, names)


def _has_servers(config: ApiServerConfig) -> bool:
    """Whether clients reach it over a network; without servers the component runs in a simulation."""
    return config.grpc_port is not None or config.rest_port is not None


def _access(config: ApiServerConfig) -> Access:
    """Return how clients are treated. Raises: StartError naming the flag and what is wrong with it."""
    modes, plugins = ("mesh", "RBAC"), ("ServiceAccount",)
    if config.authorization_mode not in modes:
        text = f"--authorization-mode {config.authorization_mode!r} is none of {', '.join(modes)}"
        raise StartError(text, EXIT_USAGE)
    for plugin in config.enable_admission_plugins:
        if plugin not in plugins:
            text = f"--enable-admission-plugins {plugin!r} is none of {', '.join(plugins)}"
            raise StartError(text, EXIT_USAGE)
    tokens = None
    if path := config.service_account_signing_key_file:
        from apiserver_fake.extensions.accounts.jwt import SigningKey
        from apiserver_fake.extensions.accounts.tokens import AccountTokens

        try:
            tokens = AccountTokens(SigningKey(Path(path).read_bytes()), config.service_account_issuer)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise StartError(f"--service-account-signing-key-file {path}: {why}", EXIT_CONFIG) from None
    is_rbac = config.authorization_mode == "RBAC"
    authority = Path(config.client_ca_file).read_text() if is_rbac and config.client_ca_file else ""
    accounts = ServiceAccounts(tokens, "ServiceAccount" in config.enable_admission_plugins)
    return Access(is_rbac, accounts, authority)


def _journal(config: ApiServerConfig, seams: Seams) -> Journal:
    match config.engine:
        case "sqlite":
            if not config.data_dir:
                raise StartError("engine sqlite needs --data-dir", EXIT_USAGE)
            from apiserver_fake.storage.sqlite import SqliteJournal

            return SqliteJournal(Path(config.data_dir))
        case "memory":
            return Journal() if _has_servers(config) else DiskJournal(seams.disk)  # whose disks can lose power
        case "etcd":
            return _etcd_journal(config, seams)
    raise StartError(f"engine {config.engine!r} is none of memory, sqlite, etcd", EXIT_USAGE)


def _etcd_journal(config: ApiServerConfig, seams: Seams) -> Journal:
    # Only here: a process with another engine need not load what talks to etcd.
    from apiserver_fake.storage.etcd.client import EtcdClient, EtcdFlags, endpoints_of
    from apiserver_fake.storage.etcd.journal import EtcdJournal

    flags = EtcdFlags(
        config.etcd_servers,
        config.etcd_cafile,
        config.etcd_certfile,
        config.etcd_keyfile,
        config.etcd_user,
        config.etcd_password_file,
    )
    endpoints_of(flags.servers)
    if not config.etcd_prefix.strip("/"):
        raise StartError("--etcd-prefix is empty", EXIT_USAGE)
    return EtcdJournal(lambda: EtcdClient(flags), config.etcd_prefix)
