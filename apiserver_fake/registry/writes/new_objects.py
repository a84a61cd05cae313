"""Names, uids and checks of new objects: a free name, an existing namespace, the limits on the number of objects."""

from __future__ import annotations

from dataclasses import dataclass

from apiserver_fake.registry.errors import details_of
from apiserver_fake.registry.errors import forbidden as refused
from apiserver_fake.registry.sessions import Session
from apiserver_fake.storage.records import Record
from apiserver_fake.storage.store import Staged
from services.api.errors import AlreadyExists, Forbidden, NotFound
from services.api.meta import Resource
from services.api.seams import Random

NAMESPACES = "namespaces"
GENERATED_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"
GENERATE_TRIES = 8
GENERATED_BASE_MAX = 58


@dataclass(frozen=True)
class Limits:
    """Limits on the number of objects: in total, and of one kind in one namespace (L-OBJ)."""

    objects: int = 200_000
    per_namespace: int = 50_000


def already_exists(resource: Resource, taken: Record) -> AlreadyExists:
    """Return the refusal of an object whose name is taken; it comes last (8.2), after the object's own errors.

    Source: upstream `staging/src/k8s.io/apiserver/pkg/registry/generic/registry/store.go`.
    """
    text = f'{resource.name} "{taken.name}" already exists'
    if taken.is_deleting:
        text = f"object is being deleted: {text}"
    return AlreadyExists(text, details=details_of(resource, taken.name))


def choose_name(random: Random, staged: Staged, resource: Resource, namespace: str, prefix: str) -> str:
    """Return a free name: prefix and five random characters. Raises: AlreadyExists (retryable) after 8 tries."""
    base = prefix[:GENERATED_BASE_MAX]
    name = ""
    for _ in range(GENERATE_TRIES):
        name = base + "".join([random.choice(GENERATED_CHARACTERS) for _ in range(5)])
        if staged.get(resource.name, namespace, name) is None:
            return name
    raise AlreadyExists(
        f'{resource.name} "{name}" already exists, the server was not able to generate a unique name for the object',
        details=details_of(resource, name),
        retry_after_s=1,
    )


def new_uid(random: Random) -> str:
    """Return a random version 4 uid (S20)."""
    bits = random.getrandbits(128)
    bits = bits & ~(0xF << 76) | (4 << 76)
    bits = bits & ~(0x3 << 62) | (0x2 << 62)
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def check_capacity(limits: Limits, staged: Staged, resource: Resource, namespace: str, name: str) -> None:
    """Check the limits on the number of objects before a creation (L-OBJ). Raises: Forbidden `QuotaExceeded`."""
    for held, most, where in (
        (staged.count(), limits.objects, "the store"),
        (staged.count_in(resource.name, namespace), limits.per_namespace, f"namespace {namespace!r}"),
    ):
        if held >= most:
            why = f"{where} holds {held}, at most {most} are allowed"
            raise refused(resource.name, name, why, reason="QuotaExceeded")


def check_namespace(staged: Staged, resource: Resource, namespace: str, name: str) -> None:
    """Check that the namespace of a new object exists and is not terminating (NamespaceLifecycle).

    Raises: NotFound if the namespace does not exist, Forbidden while it is being deleted.
    """
    namespace_record = staged.get(NAMESPACES, "", namespace)
    if namespace_record is None:
        raise NotFound(f'namespaces "{namespace}" not found', details={"name": namespace, "kind": NAMESPACES})
    if namespace_record.is_deleting:
        raise Forbidden(
            f'{resource.name} "{name}" is forbidden: unable to create new content in namespace {namespace} '
            "because it is being terminated",
            details={
                **details_of(resource, name),
                "causes": [
                    {
                        "reason": "NamespaceTerminating",
                        "message": f"namespace {namespace} is being terminated",
                        "field": "metadata.namespace",
                    }
                ],
            },
        )


def uid_for(session: Session | None, random: Random, taken: Record | None) -> str:
    """Return the uid of a new object, the same in every attempt; for a taken name the uid of the existing object."""
    if taken is not None:
        return taken.uid
    if session is None:
        return new_uid(random)
    session.uid = session.uid or new_uid(random)
    return session.uid


def generated_name(
    session: Session | None, random: Random, staged: Staged, resource: Resource, namespace: str, prefix: str
) -> str:
    """Return a free name for a new object: that of its first attempt if it is still free.

    Raises: AlreadyExists.
    """
    known = session.name if session is not None else ""
    if known and staged.get(resource.name, namespace, known) is None:
        return known
    name = choose_name(random, staged, resource, namespace, prefix)
    if session is not None:
        session.name = name
    return name
