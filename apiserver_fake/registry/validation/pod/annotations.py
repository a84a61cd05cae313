"""Rules of annotations with a meaning for pods: mirror pods, deletion costs, seccomp, AppArmor,
tolerations.

Source: upstream `pkg/apis/core/validation/validation.go` (v1.36): `ValidatePodSpecificAnnotations`,
`ValidatePodSpecificAnnotationUpdates`, `validateSeccompAnnotationsAndFields`,
`validateAppArmorAnnotationsAndFieldsMatchOnCreate`.
"""

import json
import re
from typing import Final

from apiserver_fake.registry.validation.fields import Report
from apiserver_fake.registry.validation.formats import Cause, Causes, forbidden, invalid
from apiserver_fake.registry.validation.pod.paths import descending
from apiserver_fake.registry.validation.pod.placement import TOLERATION
from apiserver_fake.registry.validation.pod.scope import containers
from services.api.kinds.pod import MIRROR_ANNOTATION
from services.api.meta import Document

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
TOLERATIONS: Final = "scheduler.alpha.kubernetes.io/tolerations"
SECCOMP_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"
APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_DEFAULT, _UNCONFINED, _LOCALHOST = "runtime/default", "unconfined", "localhost/"
_SECCOMP_DEFAULTS = (_DEFAULT, "docker/default")
_COST = re.compile(r"0|-[0-9]+|[1-9][0-9]*")


def check_annotations(annotations: Document, spec: Document, at: str, report: Report) -> None:
    """Add the errors in the annotations of a pod or a template to the report; `at` is their path."""
    if not annotations:
        return
    causes = report.causes
    if MIRROR_ANNOTATION in annotations and not spec.get("nodeName"):
        value, text = annotations[MIRROR_ANNOTATION], "must set spec.nodeName if mirror pod annotation is set"
        causes.append(invalid(f"{at}[{MIRROR_ANNOTATION}]", value, text))
    if tolerations := annotations.get(TOLERATIONS):
        causes += _tolerations(tolerations, at, report)
    cost = annotations.get(DELETION_COST)
    if cost is not None and not (_COST.fullmatch(cost) and -(2**31) <= int(cost) < 2**31):
        causes.append(invalid(f"{at}[{DELETION_COST}]", cost, "must be a 32bit integer"))
    if SECCOMP_POD in annotations:
        causes += _seccomp(annotations[SECCOMP_POD], f"{at}.{SECCOMP_POD}")
    for name, value in annotations.items():
        if name.startswith(SECCOMP_CONTAINER):
            causes += _seccomp(value, f"{at}.{name}")
    for name, value in annotations.items():
        if name.startswith(APP_ARMOR):
            causes += _app_armor(name.removeprefix(APP_ARMOR), value, spec, f"{at}[{name}]")


def _tolerations(text: str, at: str, report: Report) -> list[Cause]:
    inner_report = Report(report.switches)
    try:
        tolerations = json.loads(text)
        for index, toleration in enumerate(tolerations):
            TOLERATION.check(dict(toleration), f"{at}.{TOLERATIONS}[{index}].", inner_report)
    except (ValueError, TypeError) as error:
        return [invalid(at, TOLERATIONS, str(error))]
    return inner_report.causes


def _seccomp(profile: str, path: str) -> list[Cause]:
    if profile in (*_SECCOMP_DEFAULTS, _UNCONFINED):
        return []
    if profile.startswith(_LOCALHOST):
        return descending(path, profile.removeprefix(_LOCALHOST))
    return [invalid(path, profile, "must be a valid seccomp profile")]


def _app_armor(container: str, profile: str, spec: Document, path: str) -> Causes:
    if container not in [each.get("name") or "" for _, each in containers(spec, "")]:
        yield invalid(path, container, "container not found")
    if profile not in ("", _DEFAULT, _UNCONFINED) and not profile.startswith(_LOCALHOST):
        yield invalid(path, profile, f'invalid AppArmor profile name: "{profile}"')


def check_agreement(annotations: Document, spec: Document, at: str) -> Causes:
    """Yield the annotations of a new pod that contradict the fields which replaced them; `at` is the spec's path."""
    if not annotations:
        return
    context = spec.get("securityContext") or {}
    if (profile := context.get("seccompProfile")) is not None and SECCOMP_POD in annotations:
        path = f"{at}securityContext.seccompProfile"
        yield from _agree(annotations[SECCOMP_POD], profile, path, "seccomp", _SECCOMP_DEFAULTS)
    for here, container in containers(spec, at):
        profile = (container.get("securityContext") or {}).get("seccompProfile")
        annotation = annotations.get(f"{SECCOMP_CONTAINER}{container.get('name') or ''}")
        if profile is not None and annotation is not None:
            yield from _agree(
                annotation, profile, f"{here}securityContext.seccompProfile", "seccomp", _SECCOMP_DEFAULTS
            )
    if (spec.get("os") or {}).get("name") == "windows":
        return
    of_pod = context.get("appArmorProfile")
    for here, container in containers(spec, at):
        own = (container.get("securityContext") or {}).get("appArmorProfile")
        profile = of_pod if own is None else own
        annotation = annotations.get(f"{APP_ARMOR}{container.get('name') or ''}")
        if profile is not None and annotation is not None:
            yield from _agree(annotation, profile, f"{here}securityContext.appArmorProfile", "apparmor", (_DEFAULT,))


def _agree(annotation: str, profile: Document, path: str, what: str, defaults: tuple[str, ...]) -> Causes:
    kind = profile.get("type")
    is_right = {
        "Unconfined": annotation == _UNCONFINED,
        "RuntimeDefault": annotation in defaults,
        "Localhost": annotation.startswith(_LOCALHOST),
    }.get(kind or "", True)
    if not is_right:
        yield forbidden(f"{path}.type", f"{what} type in annotation and field must match")
    elif kind == "Localhost" and annotation.removeprefix(_LOCALHOST) != profile.get("localhostProfile"):
        yield forbidden(f"{path}.localhostProfile", f"{what} profile in annotation and field must match")


def check_annotations_update(old: Document, new: Document, at: str) -> Causes:
    """Yield the forbidden changes of an update: of the mirror pod annotation, and of AppArmor annotations."""
    if old == new:
        return
    kinds = {MIRROR_ANNOTATION: "mirror pod annotation"}
    for name in (*old, *(each for each in new if each not in old)):
        what = "AppArmor annotations" if name.startswith(APP_ARMOR) else kinds.get(name)
        if what is not None and old.get(name) != new.get(name):
            verb = "remove or update" if name in old else "add"
            yield forbidden(f"{at}[{name}]", f"may not {verb} {what}")
