"""What `/healthz`, `/livez` and `/readyz` check, under upstream's names, and the lines of their long form.

The store stands for etcd; of the hooks that run after a start those are named whose work is done here too.

Source: upstream `staging/src/k8s.io/apiserver/pkg/server/healthz/healthz.go`, `server/healthz.go`.
"""

from collections.abc import Iterable

_FIRST = ("ping", "log", "etcd")
_READY = ("etcd-readiness", "informer-sync")
_HOOKS = (
    "poststarthook/crd-informer-synced",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
)
_AT_ONCE = ("ping", "log")
"""What is well from the moment that somebody answers; all others once the store is recovered."""


def checks_of(endpoint: str) -> tuple[str, ...]:
    """Return the names of what `healthz`, `livez` or `readyz` checks, in order."""
    return (*_FIRST, *_READY, *_HOOKS, "shutdown") if endpoint == "readyz" else (*_FIRST, *_HOOKS)


def failed(checks: Iterable[str], *, is_ready: bool) -> set[str]:
    """Return those of the checks that fail."""
    return set() if is_ready else set(checks) - set(_AT_ONCE)


def report(endpoint: str, checks: Iterable[str], failed: set[str], excluded: list[str]) -> str:
    """Return the long form; `excluded`: checks that the caller leaves out of the judgement."""
    lines, left = [], [each for each in excluded if each]
    for name in checks:
        if name in left:
            left.remove(name)
            lines.append(f"[+]{name} excluded: ok")
        else:
            lines.append(f"[-]{name} failed: reason withheld" if name in failed else f"[+]{name} ok")
    if left:
        names = ", ".join(f'"{each}"' for each in left)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
    outcome = "failed" if failed - set(excluded) else "passed"
    return "\n".join([*lines, f"{endpoint} check {outcome}", ""])
