"""Rules of a container's volume mounts and block devices.

Source: upstream `pkg/apis/core/validation/validation.go` (v1.36): `ValidateVolumeMounts`,
`ValidateVolumeDevices`, `validateMountPropagation`, `validateMountRecursiveReadOnly`.
"""

from apiserver_fake.registry.validation.fields import Report
from apiserver_fake.registry.validation.formats import Causes, forbidden, invalid, not_supported, required, unknown
from apiserver_fake.registry.validation.pod.paths import descending, no_backsteps
from services.api.meta import Document

PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
RECURSIVE = ("Disabled", "Enabled", "IfPossible")
_NOT_BLOCK = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"


def mounts_and_devices(container: Document, at: str, report: Report) -> Causes:
    """Check a container's mounts and devices: each volume and each path occurs once, in one of the two lists."""
    mounts, devices = container.get("volumeMounts"), container.get("volumeDevices")
    if mounts:
        yield from _mounts(mounts, container, f"{at}volumeMounts", report)
    if devices:
        yield from _devices(devices, mounts or [], f"{at}volumeDevices", report)


def _mounts(mounts: list[Document], container: Document, path: str, report: Report) -> Causes:
    volumes = report.scope.volumes
    devices = {each.get("name") or "": each.get("devicePath") or "" for each in container.get("volumeDevices") or ()}
    taken: set[str] = set()
    for index, mount in enumerate(mounts):
        name, place = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{path}[{index}].name")
        if name not in volumes:
            yield unknown(f"{path}[{index}].name", name)
        if not place:
            yield required(f"{path}[{index}].mountPath")
        if place in taken:
            yield invalid(f"{path}[{index}].mountPath", place, "must be unique")
        taken.add(place)
        if devices and name in devices:
            yield invalid(f"{path}[{index}].name", name, "must not already exist in volumeDevices")
        if devices and place in devices.values():
            yield invalid(f"{path}[{index}].mountPath", place, "must not already exist as a path in volumeDevices")
        if len(mount) > 2:
            yield from _options(mount, container, path, f"{path}[{index}]")


def _options(mount: Document, container: Document, path: str, here: str) -> Causes:
    # Upstream names some of these fields without the mount's place in the list.
    below, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
    if below:
        yield from descending(f"{path}.subPath", below)
    if expression:
        if below:
            yield invalid(f"{here}.subPathExpr", expression, "subPathExpr and subPath are mutually exclusive")
        yield from descending(f"{path}.subPathExpr", expression)
    propagation = mount.get("mountPropagation")
    if propagation is not None:
        if propagation not in PROPAGATIONS:
            yield not_supported(f"{path}.mountPropagation", propagation, PROPAGATIONS)
        if propagation == "Bidirectional" and not (container.get("securityContext") or {}).get("privileged"):
            text = "Bidirectional mount propagation is available only to privileged containers"
            yield forbidden(f"{path}.mountPropagation", text)
    recursive = mount.get("recursiveReadOnly")
    if recursive is None or recursive == "Disabled":
        return
    if recursive not in RECURSIVE:
        yield not_supported(f"{path}.recursiveReadOnly", recursive, RECURSIVE)
        return
    if not mount.get("readOnly"):
        yield forbidden(f"{path}.recursiveReadOnly", "may only be specified when readOnly is true")
    if propagation is not None and propagation != "None":
        text = "may only be specified when mountPropagation is None or not specified"
        yield forbidden(f"{path}.recursiveReadOnly", text)


def _devices(devices: list[Document], mounts: list[Document], path: str, report: Report) -> Causes:
    volumes = report.scope.volumes
    mounted = {each.get("name") or "": each.get("mountPath") or "" for each in mounts}
    names: set[str] = set()
    places: set[str] = set()
    for index, device in enumerate(devices):
        name, place = device.get("name") or "", device.get("devicePath") or ""
        at_name, at_path = f"{path}[{index}].name", f"{path}[{index}].devicePath"
        if not name:
            yield required(at_name)
        if name in names:
            yield invalid(at_name, name, "must be unique")
        source = volumes.get(name)
        if source is None:
            yield unknown(at_name, name)
        elif source.get("persistentVolumeClaim") is None and source.get("ephemeral") is None:
            yield invalid(at_name, name, _NOT_BLOCK)
        if not place:
            yield required(at_path)
        if place in places:
            yield invalid(at_path, place, "must be unique")
        if no_backsteps("", place):
            yield invalid(at_path, place, "can not contain backsteps ('..')")
        else:
            places.add(place)
        if name in mounted:
            yield invalid(at_name, name, "must not already exist in volumeMounts")
        if place in mounted.values():
            yield invalid(at_path, place, "must not already exist as a path in volumeMounts")
        if name:
            names.add(name)
