"""Rules of security contexts, of namespaces shared with the host, and of the operating system that a pod names.

Containers may be privileged, as in clusters whose API server runs with `--allow-privileged`.
Source: upstream `pkg/apis/core/validation/validation.go` (v1.36): `validatePodSpecSecurityContext`,
`ValidateSecurityContext`, `validateSysctls`, `validateSeccompProfileField`, `ValidateAppArmorProfileField`,
`validateWindowsSecurityContextOptions`, `validateWindowsHostProcessPod`, `validateHostUsers`, `validateOS`,
`validateLinux`, `validateWindows`; KEP-127 for user namespaces, KEP-3619 for supplemental groups.
"""

import re
from typing import Any

from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import (
    Causes,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    subdomain,
    too_long,
)
from apiserver_fake.registry.validation.pod.paths import descending
from apiserver_fake.registry.validation.pod.scope import as_internal, containers
from services.api.meta import Document

ID_MAX, SYSCTL_MAX, PROFILE_MAX = 2**31 - 1, 253, 4095
_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL = rf"^({_SEGMENT}[\./])*{_SEGMENT}$"
_SYSCTL_RE = re.compile(_SYSCTL)
_TYPES = ("Localhost", "RuntimeDefault", "Unconfined")
_PROC_MOUNTS = ("Default", "Unmasked")
SYSTEMS = ("linux", "windows")


def _id(name: str) -> Field:
    return Field(name, minimum=0, maximum=ID_MAX)


def _seccomp(profile: Document, at: str, report: Report) -> Causes:
    kind, path = profile.get("type") or "", profile.get("localhostProfile")
    if not kind:
        yield required(f"{at}type", "type is required when seccompProfile is set")
    elif kind not in _TYPES:
        yield not_supported(f"{at}type", kind, _TYPES)
    if kind != "Localhost":
        if path is not None:
            shown = as_internal((("type", kind), ("localhostProfile", path)))
            yield invalid(f"{at}localhostProfile", shown, "can only be set when seccomp type is Localhost")
    elif path is None:
        yield required(f"{at}localhostProfile", "must be set when seccomp type is Localhost")
    else:
        yield from descending(f"{at}localhostProfile", path)


def _app_armor(profile: Document, at: str, report: Report) -> Causes:
    kind, name, here = profile.get("type") or "", profile.get("localhostProfile"), f"{at}localhostProfile"
    if not kind:
        yield required(f"{at}type", "type is required when appArmorProfile is set")
    elif kind not in _TYPES:
        yield not_supported(f"{at}type", kind, _TYPES)
    elif kind != "Localhost":
        if name is not None:
            yield invalid(here, name, "can only be set when AppArmor type is Localhost")
    elif name is None:
        yield required(here, "must be set when AppArmor type is Localhost")
    else:
        if name.strip() != name:
            yield invalid(here, name, "must not be padded with whitespace")
        elif not name:
            yield required(here, "must be set when AppArmor type is Localhost")
        if len(name) > PROFILE_MAX:
            yield too_long(here, PROFILE_MAX)


def _sysctls(sysctls: list[Document], path: str, report: Report) -> Causes:
    spec, seen = report.scope.spec, set()
    for index, sysctl in enumerate(sysctls):
        name, here = sysctl.get("name") or "", f"{path}[{index}].name"
        if not name:
            yield required(here)
        elif len(name) > SYSCTL_MAX or not _SYSCTL_RE.fullmatch(name):
            yield invalid(here, name, f"must have at most {SYSCTL_MAX} characters and match regex {_SYSCTL}")
        elif name in seen:
            yield duplicate(here, name)
        namespace = _namespace_of(name)
        if spec.get("hostNetwork") and namespace == "net":
            yield invalid(here, name, "may not be specified when 'hostNetwork' is true")
        elif spec.get("hostIPC") and namespace == "ipc":
            yield invalid(here, name, "may not be specified when 'hostIPC' is true")
        seen.add(name)


_IPC = (
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
)


def _namespace_of(sysctl: str) -> str:
    """Return the namespace that a parameter belongs to, "" if none.

    Source: upstream `staging/src/k8s.io/component-helpers/node/util/sysctl/namespace.go`.
    """
    first = re.search(r"[./]", sysctl)
    name = sysctl
    if first is not None and first[0] == "/":
        name = sysctl.translate(str.maketrans("./", "/."))
    if name in _IPC or name.startswith("fs.mqueue."):
        return "ipc"
    return "net" if name.startswith("net.") else ""


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NET_BIOS = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_DNS_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DNS = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")
_NOT_IN_USER, _DOTS = re.compile(r'["/\\:;|=,+*?<>@\[\]]'), re.compile(r"[. ]+")
_DOMAIN_MAX, _USER_MAX, _SPEC_MAX_KIB = 256, 104, 64


def _user_name(name: str, path: str, report: Report) -> Causes:
    parts = name.split("\\")
    if not name:
        yield invalid(path, name, "runAsUserName cannot be an empty string")
    elif _CONTROL.search(name):
        yield invalid(path, name, "runAsUserName cannot contain control characters")
    elif len(parts) > 2:
        yield invalid(path, name, "runAsUserName cannot contain more than one backslash")
    else:
        domain, user = parts if len(parts) == 2 else (None, name)
        if domain is not None:
            if len(domain) >= _DOMAIN_MAX:
                yield invalid(path, name, f"runAsUserName's Domain length must be under {_DOMAIN_MAX} characters")
            if not _NET_BIOS.fullmatch(domain) and not _DNS.fullmatch(domain):
                yield invalid(path, name, "runAsUserName's Domain doesn't match the NetBios nor the DNS format")
        if not user:
            yield invalid(path, name, "runAsUserName's User cannot be empty")
        elif len(user) > _USER_MAX:
            text = f"runAsUserName's User length must not be longer than {_USER_MAX} characters"
            yield invalid(path, name, text)
        if _DOTS.fullmatch(user):
            yield invalid(path, name, "runAsUserName's User cannot contain only periods or spaces")
        if _NOT_IN_USER.search(user):
            text = "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"
            yield invalid(path, name, text)


def _gmsa(text: str, path: str, report: Report) -> Causes:
    if not text:
        yield invalid(path, text, "gmsaCredentialSpec cannot be an empty string")
    elif len(text) > _SPEC_MAX_KIB * 1024:
        yield invalid(path, text, f"gmsaCredentialSpec size must be under {_SPEC_MAX_KIB} KiB")


_WINDOWS = Field(
    "windowsOptions",
    struct=Struct(
        Field("gmsaCredentialSpecName", rule=lambda name, path, report: subdomain(path, name)),
        Field("gmsaCredentialSpec", rule=_gmsa),
        Field("runAsUserName", rule=_user_name),
    ),
)
_SECCOMP = Field("seccompProfile", struct=Struct(_seccomp))
_APP_ARMOR = Field("appArmorProfile", struct=Struct(_app_armor))


def _share_processes(context: Document, at: str, report: Report) -> Causes:
    spec = report.scope.spec
    if spec.get("hostPID") and spec.get("shareProcessNamespace"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(f"{at}shareProcessNamespace", True, text)


POD_CONTEXT = Struct(
    _id("fsGroup"),
    _id("runAsUser"),
    _id("runAsGroup"),
    Field("supplementalGroups", items=_id("")),
    _share_processes,
    Field("sysctls", rule=_sysctls),
    Field("fsGroupChangePolicy", enum=("Always", "OnRootMismatch")),
    _SECCOMP,
    _WINDOWS,
    _APP_ARMOR,
    Field("supplementalGroupsPolicy", enum=("Merge", "Strict")),
    Field("seLinuxChangePolicy", enum=("MountOption", "Recursive")),
)


def _proc_mount(kind: str, path: str, report: Report) -> Causes:
    if kind not in _PROC_MOUNTS:
        yield not_supported(path, kind, _PROC_MOUNTS)
    if kind == "Unmasked" and not report.scope.has_own_users:
        yield invalid(path, kind, "`hostUsers` must be false to use `Unmasked`")


_PARTS = (
    "capabilities",
    "privileged",
    "seLinuxOptions",
    "windowsOptions",
    "runAsUser",
    "runAsGroup",
    "runAsNonRoot",
    "readOnlyRootFilesystem",
    "allowPrivilegeEscalation",
    "procMount",
    "seccompProfile",
    "appArmorProfile",
)
"""Fields of a security context, in the order of upstream's internal type."""
_MORE = {
    "capabilities": ("add", "drop"),
    "seLinuxOptions": ("user", "role", "type", "level"),
    "windowsOptions": ("gmsaCredentialSpecName", "gmsaCredentialSpec", "runAsUserName", "hostProcess"),
    "seccompProfile": ("type", "localhostProfile"),
    "appArmorProfile": ("type", "localhostProfile"),
}


def _shown_context(context: Document) -> Document:
    """Return a container's security context as refusals show it."""

    def value(name: str) -> Any:
        inner = context.get(name)
        if inner is None or name not in _MORE:
            return inner
        members = ((each, inner.get(each, "" if name == "seLinuxOptions" else None)) for each in _MORE[name])
        return {
            ("SELinuxOptions" if key == "SeLinuxOptions" else key.replace("Gmsa", "GMSA")): each
            for key, each in as_internal(members).items()
        }

    members = as_internal((name, value(name)) for name in _PARTS)
    return {("SELinuxOptions" if name == "SeLinuxOptions" else name): each for name, each in members.items()}


def _escalation(context: Document, at: str, report: Report) -> Causes:
    if context.get("allowPrivilegeEscalation") is not False:
        return
    if context.get("privileged"):
        text = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        yield invalid(at[:-1], _shown_context(context), text)
    for name in (context.get("capabilities") or {}).get("add") or ():
        if name == "CAP_SYS_ADMIN":
            text = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            yield invalid(at[:-1], _shown_context(context), text)


CONTAINER_CONTEXT = Struct(
    _id("runAsUser"),
    _id("runAsGroup"),
    Field("procMount", rule=_proc_mount),
    _SECCOMP,
    _escalation,
    _WINDOWS,
    _APP_ARMOR,
)


def host_processes(spec: Document, at: str, report: Report) -> Causes:
    """Check Windows host process containers (KEP-1981): all containers of a pod or none, in the host's network."""
    of_pod = ((spec.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess")
    count = total = 0
    for path, container in containers(spec, at):
        own = ((container.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess")
        total += 1
        count += bool(of_pod if own is None else own)
        if of_pod is not None and own is not None and of_pod != own:
            text = f"pod hostProcess value must be identical if both are specified, was {str(of_pod).lower()}"
            yield invalid(f"{path}securityContext.windowsOptions.hostProcess", own, text)
    if not count:
        return
    if count != total:
        text = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        yield invalid(at[:-1], "", text)
    if not spec.get("hostNetwork"):
        yield invalid(f"{at}hostNetwork", False, "hostNetwork must be true if pod contains any hostProcess containers")


def own_users(spec: Document, at: str, report: Report) -> Causes:
    """Check a pod with its own user namespace: it shares no host namespace and has no block devices."""
    if spec.get("hostUsers") is not False:
        return
    for name, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
        if spec.get(name):
            yield forbidden(f"{at}{shown}", "when `hostUsers` is false")
    for path, container in containers(spec, at):
        if container.get("volumeDevices"):
            yield forbidden(f"{path}volumeDevices", "when `hostUsers` is false")


_NOT_LINUX, _NOT_WINDOWS = "windows options cannot be set for a linux pod", "cannot be set for a windows pod"
_POD_LINUX = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
)
_SPEC_LINUX = ("hostUsers", "hostPID", "hostIPC", "shareProcessNamespace")
_CONTAINER_LINUX = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)


def system(spec: Document, at: str, report: Report) -> Causes:
    """Check the operating system that a pod names, and that fields of another one are not set (KEP-2802)."""
    pod_os = spec.get("os")
    if pod_os is None:
        return
    name, context = pod_os.get("name") or "", spec.get("securityContext") or {}
    if not name:
        yield required(f"{at}os.name")
    elif name not in SYSTEMS:
        yield not_supported(f"{at}os", name, SYSTEMS)
    elif name == "linux":
        if context.get("windowsOptions") is not None:
            yield forbidden(f"{at}securityContext.windowsOptions", _NOT_LINUX)
        for path, container in containers(spec, at):
            if (container.get("securityContext") or {}).get("windowsOptions") is not None:
                yield forbidden(f"{path}securityContext.windowsOptions", _NOT_LINUX)
    else:
        yield from _set(context, _POD_LINUX, f"{at}securityContext.")
        yield from _set(spec, _SPEC_LINUX, at)
        for path, container in containers(spec, at):
            yield from _set(container.get("securityContext") or {}, _CONTAINER_LINUX, f"{path}securityContext.")


_UNSET = frozenset(("sysctls", "hostPID", "hostIPC"))
"""Fields that count as unset when empty."""


def _set(holder: Document, names: tuple[str, ...], at: str) -> Causes:
    for name in names:
        value = holder.get(name)
        if value is not None and not (name in _UNSET and not value):
            yield forbidden(f"{at}{name}", _NOT_WINDOWS)
