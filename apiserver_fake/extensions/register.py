"""The extensions of an API server, one function each: the one place where an extension is on or off.

Each function fills places of the kernel (`points`). Its imports happen when the server first needs the
extension: a simulation without custom resources, webhooks, policies and metrics loads none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.extensions.points import Definitions, Extensions, StoredPolicy, TokenSecrets
from apiserver_fake.registry.accounts import Find, Tokens
from apiserver_fake.registry.admission.attributes import EXEMPT, Admission
from apiserver_fake.registry.authorization.access import Access
from apiserver_fake.registry.catalogue import Catalogue, Kind, KindExtensions, OtherVersion
from apiserver_fake.registry.managers import FieldManagers
from apiserver_fake.registry.policy import KINDS as POLICY_KINDS
from apiserver_fake.registry.strategy import Strategy
from apiserver_fake.registry.versions import Versions
from apiserver_fake.registry.writes.new_objects import new_uid
from apiserver_fake.storage.store import Store
from services.api.identity import Identity
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.meta import Document
from services.api.metrics.apis import COMPUTED
from services.api.metrics.usage import UsageDocuments
from services.api.seams import Seams
from services.api.wire import Api, Request, Response
from services.runtime.config import EXIT_CONFIG, EXIT_USAGE, StartError

if TYPE_CHECKING:
    from apiserver_fake.extensions.audit.auditor import Auditor
    from apiserver_fake.extensions.kwok_kinds import KwokKinds

Address = Callable[[str, str, int], tuple[str, int]]
"""Resolver: returns the host and port of a Service for `(namespace, service, port)`. Raises: ApiError."""
API_SERVICES: Final = "apiservices.apiregistration.k8s.io"
FLOW_KINDS: Final = (
    "flowschemas.flowcontrol.apiserver.k8s.io",
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
)
OTHER_VERSIONS: Final = ("events", "horizontalpodautoscalers.autoscaling")
"""Built-in kinds that are also served in a second version."""
ALL: Final = frozenset(
    (
        "accounts",
        "admission",
        "aggregated",
        "audit",
        "conversion",
        "customresources",
        "fairness",
        "managedfields",
        "rbac",
    )
)


def extensions_of(
    config: ApiServerConfig, seams: Seams, access: Access, address: Address, names: Collection[str] = ALL
) -> Extensions:
    """Return the extensions of these names, as configured. Raises: StartError."""
    _refuse_left_out(config, names)
    extensions = Extensions(kinds=kinds_of(names))
    if "managedfields" in names:
        extensions = replace(extensions, managers=_managers)
    if "admission" in names:
        extensions = replace(extensions, admission=partial(_admission, config, seams))
    if "customresources" in names:
        kwok = _kwok(config)
        # In a simulation there is nothing to connect to.
        is_converting = config.rest_port is not None
        make = partial(_definitions, seams, address if is_converting else None, kwok)
        extensions = replace(extensions, definitions=make, is_converting=is_converting, kwok=kwok)
    if "rbac" in names and access.is_rbac:
        extensions = replace(extensions, stored_policy=_stored_policy, access_objects=_access_objects)
    if "accounts" in names and access.accounts.tokens is not None:
        extensions = replace(extensions, token_secrets=_token_secrets)
    if "aggregated" in names:
        extensions = replace(extensions, computed=_answer_computed)
    if "audit" in names:
        extensions = replace(extensions, audit=_auditor(config, seams))
    return extensions


def _refuse_left_out(config: ApiServerConfig, names: Collection[str]) -> None:
    """Raise StartError for a flag whose extension is left out: nothing would do what it says."""
    flags = {
        "--authorization-mode RBAC": ("rbac", config.authorization_mode == "RBAC"),
        "--service-account-signing-key-file": ("accounts", bool(config.service_account_signing_key_file)),
        "--audit-log-path": ("audit", bool(config.audit_log_path)),
        "--audit-policy-file": ("audit", bool(config.audit_policy_file)),
        "--enable-crds": ("customresources", bool(config.enable_crds)),
        "--kwok": ("customresources", bool(config.kwok)),
    }
    for flag, (name, is_given) in flags.items():
        if is_given and name not in names:
            raise StartError(f"{flag} needs the extension {name}, which this server is built without", EXIT_USAGE)


def kinds_of(names: Collection[str] = ALL) -> KindExtensions:
    """Return what the named extensions add to built-in kinds; the kinds of all other extensions are absent."""
    strategies: dict[str, Callable[[], Strategy]] = {}
    absent: set[str] = set()
    if "admission" in names:
        strategies |= {name: partial(_admission_strategy, name) for name in EXEMPT}
    else:
        absent |= EXEMPT
    if "customresources" in names:
        strategies[DEFINITIONS] = _definition_strategy
    else:
        absent.add(DEFINITIONS)
    if "fairness" not in names:
        absent.update(FLOW_KINDS)
    if "rbac" not in names:
        absent.update(POLICY_KINDS)
    if "aggregated" not in names:
        absent.add(API_SERVICES)
    return KindExtensions(
        strategies=strategies,
        versions={name: partial(_other_version, name) for name in OTHER_VERSIONS if "conversion" in names},
        computed=COMPUTED if "aggregated" in names else {},
        absent=frozenset(absent),
    )


def _admission_strategy(name: str) -> Strategy:
    from apiserver_fake.extensions.admission.strategies import STRATEGIES

    return STRATEGIES[name]


def _definition_strategy() -> Strategy:
    from apiserver_fake.extensions.customresources.strategy import STRATEGY

    return STRATEGY


def _other_version(name: str) -> OtherVersion:
    if name == "events":
        from apiserver_fake.extensions.conversion import events

        return events.OTHER_VERSION
    from apiserver_fake.extensions.conversion import autoscaling

    return autoscaling.OTHER_VERSION


def _managers(kind: Kind, identity: Identity, request: Request, versions: Versions) -> FieldManagers:
    from apiserver_fake.extensions.managedfields.field_managers import TrackedManagers

    return TrackedManagers(kind, identity, request, versions)


def _admission(config: ApiServerConfig, seams: Seams, store: Store, catalogue: Catalogue) -> Admission:
    from apiserver_fake.extensions.admission.dynamic import DynamicAdmission
    from apiserver_fake.extensions.admission.webhook_calls import HttpsPost, WebhookCalls, unreachable

    has_servers = config.grpc_port is not None or config.rest_port is not None
    post = HttpsPost(store, seams.tracer) if has_servers else unreachable
    calls = WebhookCalls(post, seams.clock.now, lambda: new_uid(seams.random))
    return DynamicAdmission(store, catalogue, calls)


def _definitions(
    seams: Seams,
    address: Address | None,
    kwok: KwokKinds | None,
    store: Store,
    catalogue: Catalogue,
    api: Callable[[], Api],
    ended: Callable[[str], None],
) -> Definitions:
    from apiserver_fake.extensions.customresources.definitions import StoredDefinitions
    from apiserver_fake.extensions.customresources.kinds import MakeConverter, no_converter

    make_converter: MakeConverter = no_converter
    if address is not None:
        from apiserver_fake.extensions.customresources.webhooks import make_webhooks

        make_converter = make_webhooks(address, seams.tracer)
    further = dict.fromkeys(kwok.names, kwok.check) if kwok is not None else {}
    return StoredDefinitions(store, catalogue, api, seams.clock, make_converter, further, ended)


def _kwok(config: ApiServerConfig) -> KwokKinds | None:
    """Return KWOK's kinds, None where there are neither files nor objects of them. Raises: StartError."""
    if not config.kwok and not config.enable_crds:
        return None
    from apiserver_fake.extensions.kwok_kinds import KwokKinds
    from services.kwok.definitions import choose_kinds
    from services.kwok.documents import KwokError, load

    try:
        kinds = choose_kinds(config.enable_crds)
    except ValueError as error:
        raise StartError(f"--enable-crds {error}", EXIT_USAGE) from None
    try:
        return KwokKinds(kinds, load(config.kwok), config.kwok_seed, runs_commands=config.host_commands)
    except KwokError as error:
        raise StartError(f"--kwok {error}", EXIT_USAGE) from None


def _stored_policy(store: Store) -> StoredPolicy:
    from apiserver_fake.extensions.rbac.stored_roles import StoredRoles

    return StoredRoles(store)


def _access_objects(access: Access, find: Find) -> Iterator[Request]:
    from apiserver_fake.extensions.rbac.access_objects import access_objects

    return access_objects(access, find)


def _token_secrets(
    tokens: Tokens, authority: str, find: Find, listing: Callable[[str], Iterable[Document]], api: Callable[[], Api]
) -> TokenSecrets:
    from apiserver_fake.extensions.accounts.token_secrets import SecretKeeper

    return SecretKeeper(tokens, authority, find, listing, api)


def _answer_computed(
    request: Request, store: Store, wall_s: float, users: Container[str], usages: UsageDocuments | None
) -> Response:
    from apiserver_fake.extensions.aggregated.answers import answer

    return answer(request, store, wall_s, users, usages)


def _auditor(config: ApiServerConfig, seams: Seams) -> Auditor | None:
    """Return what keeps the audit log, None where there is none. Raises: StartError naming the flag and the fault."""
    if not config.audit_log_path and not config.audit_policy_file:
        return None
    from apiserver_fake.extensions.audit.auditor import Auditor
    from apiserver_fake.extensions.audit.log import AuditFile, Rotation
    from apiserver_fake.extensions.audit.policy import read_policy

    flags = {"--audit-log-path": config.audit_log_path, "--audit-policy-file": config.audit_policy_file}
    missing = next((flag for flag, path in flags.items() if not path), "")
    if missing:
        raise StartError(f"{next(flag for flag, path in flags.items() if path)} without {missing}", EXIT_USAGE)
    rotation = Rotation(config.audit_log_maxsize, config.audit_log_maxbackup, config.audit_log_maxage)
    try:
        policy = read_policy(Path(config.audit_policy_file))
        file = AuditFile(config.audit_log_path, rotation, seams.clock.wall)
        file.open()
    except ValueError as error:
        raise StartError(f"--audit-policy-file {error}", EXIT_CONFIG) from None
    except OSError as error:
        raise StartError(f"--audit-log-path {config.audit_log_path}: {error.strerror}", EXIT_CONFIG) from None
    return Auditor(policy, file, seams.clock.wall, lambda: new_uid(seams.random))


def whole_catalogue() -> Catalogue:
    """Return the catalogue of a server with all extensions and no definitions."""
    return Catalogue(extensions=kinds_of())
