"""The files of an emulated container: those of an image, and the content of its volumes. Pure.

Source: upstream `pkg/volume/util/atomic_writer.go`.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from kubelet.runtime.projections import Objects, mounted_volumes, payload_of
from kubelet.runtime.shell.files import Directory, File, FileSystem, Link
from kubelet.runtime.shell.programs import PROGRAMS
from services.api.meta import Document
from services.api.times import format_as

ROOT_DIRECTORIES: Final = ("bin", "dev", "etc", "home", "proc", "root", "tmp", "usr/bin", "var/run")


def projected_directory(payload: Iterable[tuple[str, bytes, int | None]], mode: int, wall_s: float) -> Directory:
    """Return the directory of a projected volume: the files behind `..data`, which the kubelet replaces at once."""
    version = format_as(wall_s, "..%Y_%m_%d_%H_%M_%S.") + f"{int(wall_s % 1 * 1e9):09d}"
    content = Directory(modified_s=wall_s)
    top = Directory(modified_s=wall_s, mode=0o777, is_read_only=True)
    for path, data, own_mode in payload:
        *parents, name = path.split("/")
        at = content
        for part in parents:
            below = at.entries.setdefault(part, Directory(modified_s=wall_s))
            at = below if isinstance(below, Directory) else at
        at.entries[name] = File(bytearray(data), own_mode or mode, wall_s)
        top.entries[(parents or [name])[0]] = Link(f"..data/{(parents or [name])[0]}", wall_s)
    top.entries[version] = content
    top.entries["..data"] = Link(version, wall_s)
    return top


def image() -> FileSystem:
    """Return the file system of an image: the usual directories, and a file for each program."""
    files = FileSystem()
    for path in ROOT_DIRECTORIES:
        for directory in (path,) if "/" not in path else (path.partition("/")[0], path):
            if not files.exists(f"/{directory}"):
                files.put(f"/{directory}", Directory())
    for name in PROGRAMS:
        files.put(f"/bin/{name}", File(mode=0o755))
    files.put("/etc/passwd", File(bytearray(b"root:x:0:0:root:/root:/bin/sh\n")))
    return files


def fill(
    files: FileSystem,
    pod: Document,
    container: Document,
    objects: Objects,
    allocatable: Mapping[str, str],
    shared: dict[str, Directory],
    wall_s: float,
) -> None:
    """Mount the present content of the pod's volumes.

    `shared`: the directories of its other volumes, which its containers have in common.
    """
    meta, status = pod.get("metadata") or {}, pod.get("status") or {}
    name = str((pod.get("spec") or {}).get("hostname") or meta.get("name", ""))
    hosts = f"# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n{status.get('podIP', '')}\t{name}\n"
    namespace = meta.get("namespace", "default")
    search = f"search {namespace}.svc.cluster.local svc.cluster.local cluster.local\n"
    search += "nameserver 10.96.0.10\noptions ndots:5\n"
    for path, text in (("/etc/hostname", f"{name}\n"), ("/etc/hosts", hosts), ("/etc/resolv.conf", search)):
        files.put(path, File(bytearray(text.encode()), modified_s=wall_s))
    volumes = {str(volume.get("name")): volume for volume in mounted_volumes(pod, container)}
    for mount in container.get("volumeMounts") or ():
        volume, path = volumes.get(str(mount.get("name"))), str(mount.get("mountPath", ""))
        if volume is None or not path.strip("/"):
            continue
        payload = payload_of(pod, container, volume, objects, allocatable)
        if payload is None:
            directory = shared.setdefault(str(mount.get("name")), Directory(mode=0o777, modified_s=wall_s))
        else:
            directory = projected_directory(*payload, wall_s)
        if not (below := str(mount.get("subPath", ""))):
            files.mount(path, directory)
            continue
        inner = FileSystem()
        inner.root = directory
        if payload is None and not inner.exists(f"/{below}"):
            inner.make_directory(f"/{below}", with_parents=True)
        if inner.exists(f"/{below}"):
            entry = inner.entry(f"/{below}")
            if isinstance(entry, Directory):
                files.mount(path, entry)
            else:
                files.put(path, entry)
