"""What an object gets when it is created: a name, a uid, and a place within the limits."""

from __future__ import annotations

from dataclasses import dataclass

from apiserver_fake.registry.errors import details_of
from apiserver_fake.storage.store import Staged
from services.api.errors import AlreadyExists, Forbidden
from services.api.meta import Resource
from services.api.seams import Random

GENERATED_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"
GENERATE_TRIES = 8
GENERATED_BASE_MAX = 58
OBJECTS_MAX = 200_000
OBJECTS_PER_NAMESPACE_MAX = 50_000


@dataclass(frozen=True)
class Limits:
    """L-OBJ: how many objects there may be, in all and of one kind in one namespace."""

    objects: int = OBJECTS_MAX
    per_namespace: int = OBJECTS_PER_NAMESPACE_MAX


def choose_name(random: Random, staged: Staged, resource: Resource, namespace: str, prefix: str) -> str:
    """Return a name that is not taken: the prefix and five random characters.

    Raises: AlreadyExists, marked as worth a retry, after eight collisions.
    """
    base = prefix[:GENERATED_BASE_MAX]
    name = ""
    for _ in range(GENERATE_TRIES):
        name = base + "".join(random.choice(GENERATED_CHARACTERS) for _ in range(5))
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
    """Refuse a creation beyond the number of objects (L-OBJ). Raises: Forbidden `QuotaExceeded`."""
    for held, most, where in (
        (staged.count(), limits.objects, "the store"),
        (staged.count_in(resource.name, namespace), limits.per_namespace, f"namespace {namespace!r}"),
    ):
        if held >= most:
            raise Forbidden(
                f'{resource.name} "{name}" is forbidden: {where} holds {held}, at most {most} are allowed',
                reason="QuotaExceeded",
                details=details_of(resource, name),
            )
