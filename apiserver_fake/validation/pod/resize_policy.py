"""Rules of `resizePolicy`: which resources it may name and what it may say of them (upstream `validateResizePolicy`).

A pod that never restarts its containers cannot ask for a restart either (kep-1287 3).
"""

from __future__ import annotations

from typing import Any

from apiserver_fake.strategy import Cause
from apiserver_fake.validation.formats import duplicate, invalid, required, unsupported

RESOURCES = ("cpu", "memory")
POLICIES = ("NotRequired", "RestartContainer")


def check_resize_policy(policies: list[Any], at: str, restart_policy: str) -> list[Cause]:
    """Return what is wrong with the resize policies of one container; `restart_policy` is its pod's."""
    causes: list[Cause] = []
    seen: dict[str, None] = {}
    for index, policy in enumerate(policies):
        resource, wanted = policy.get("resourceName") or "", policy.get("restartPolicy") or ""
        if resource in seen:
            causes.append(duplicate(f"{at}[{index}]", resource))
        seen[resource] = None
        for value, allowed in ((resource, RESOURCES), (wanted, POLICIES)):
            if not value:
                causes.append(required(at))
            elif value not in allowed:
                causes.append(unsupported(at, value, allowed))
        if restart_policy == "Never" and wanted != "NotRequired":
            causes.append(invalid(at, wanted, "must be 'NotRequired' when `restartPolicy` is 'Never'"))
    return causes
