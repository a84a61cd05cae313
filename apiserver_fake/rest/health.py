"""`/healthz`, `/livez` and `/readyz`: named checks, each with a path of its own.

Source: upstream `staging/src/k8s.io/apiserver/pkg/server/healthz/healthz.go`.
"""

from collections.abc import Collection, Sequence

from apiserver_fake.storage.records import ReadOnly
from services.api.times import format_time

CHECKS = (
    "ping",
    "log",
    "etcd",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-system-namespaces-controller",
)
"""Names of the health checks, as upstream's and in its order, for work that this server does too. All of it
is done once the server has recovered.
"""
READINESS = ("etcd-readiness", "informer-sync")
"""Checks that only `/readyz` has."""
ALWAYS = frozenset(("ping", "log"))
OF_ETCD = frozenset(("etcd", "etcd-readiness"))
"""Checks that fail while etcd does not answer, also of `/livez`. Source: upstream `pkg/server/options/etcd.go`."""


def checks_of(endpoint: str) -> tuple[str, ...]:
    """Return the checks of `healthz`, `livez` or `readyz`."""
    return (*CHECKS[:3], *READINESS, *CHECKS[3:]) if endpoint == "readyz" else CHECKS


def is_passing(endpoint: str, check: str, *, is_ready: bool, failing: Collection[str] = ()) -> bool:
    """Whether a check passes. A server that is still reading its store is alive. `failing`: names of failing checks."""
    return check not in failing and (is_ready or endpoint == "livez" or check in ALWAYS)


def report(
    endpoint: str,
    *,
    is_ready: bool,
    is_verbose: bool,
    excluded: Sequence[str],
    read_only: ReadOnly | None = None,
    failing: Collection[str] = (),
) -> tuple[int, str]:
    """Return status and text of an endpoint's whole answer; failing checks are always named.

    `read_only`: writes are refused, which gets a line of its own and is no failure: reads and watches go on (S16).
    """
    left = dict.fromkeys(sorted(excluded))
    lines, failed = [], False
    for check in checks_of(endpoint):
        if check in left:
            del left[check]
            lines.append(f"[+]{check} excluded: ok\n")
        elif is_passing(endpoint, check, is_ready=is_ready, failing=failing):
            lines.append(f"[+]{check} ok\n")
        else:
            failed = True
            lines.append(f"[-]{check} failed: reason withheld\n")
    if left:
        names = ",".join(f'"{name}"' for name in left)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}\n")
    if read_only is not None:
        lines.append(f"warn: StoreReadOnly since {format_time(read_only.since_s)}: {read_only.why}\n")
    text = "".join(lines)
    if failed:
        return 500, f"{text}{endpoint} check failed\n"
    return 200, f"{text}{endpoint} check passed\n" if is_verbose else "ok"
