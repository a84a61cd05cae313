"""`keplab doctor`: check line by line whether this machine has what keplab needs, and say what to do if not."""

import json
import os
import platform
import re
import resource
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import click

from lab.cli.output import EXIT_FAILED, EXIT_OK, data_option, output_option, print_json
from services.api.release import FOLLOWED
from services.runtime import mesh_directory

OK, WARN, FAIL = "ok", "warn", "fail"
PYTHON_MIN, PYTHON_TRIED = (3, 11), (3, 14)
LOCK = Path(__file__).parents[3] / "requirements-runtime.lock"
MIB = 2**20
DISK_MIN, DISK_ENOUGH = 256 * MIB, 2048 * MIB
"""Free bytes of disk: below the first a store goes read-only; an hour of a busy mesh writes the second."""
FILES_MIN, FILES_ENOUGH = 256, 4096
ASKED_MAX_S = 10.0
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}
EPILOG = """\
\b
Examples:
  keplab doctor
  keplab doctor -o json | jq '.checks[] | select(.status != "ok")'
"""


@dataclass(frozen=True)
class Check:
    """One check: its name, `ok`, `warn` or `fail`, what was found, and what to do about it."""

    name: str
    status: str
    message: str
    remedy: str = ""


@click.command("doctor", epilog=EPILOG)
@data_option
@output_option
def doctor(data: Path, output: str) -> int:
    """Check what keplab needs of this machine.

    Each line says ok, warn (a feature will be missing) or fail (keplab will not work), and what to do. The exit code is
    1 when a line says fail.
    """
    results = [*checks(data, os.environ)]
    is_well = all(each.status != FAIL for each in results)
    if output == "json":
        print_json({"checks": [asdict(each) for each in results], "ok": is_well})
        return EXIT_OK if is_well else EXIT_FAILED
    for check in results:
        click.secho(f"{check.status:<5}", fg=COLOURS[check.status], nl=False)
        click.echo(f" {check.name}: {check.message}" + (f"; {check.remedy}" if check.remedy else ""))
    return EXIT_OK if is_well else EXIT_FAILED


def checks(data: Path, environ: Mapping[str, str]) -> Iterator[Check]:
    """Yield every check, in order."""
    yield python(sys.version_info[:3])
    yield libraries(LOCK)
    yield loopback()
    yield proxies(environ)
    yield proc(Path("/proc"))
    yield disk(data, lambda path: shutil.disk_usage(path).free)
    yield open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield clock(time.time())
    yield data_folder(data)
    yield kubectl(shutil.which("kubectl"))
    yield docker(shutil.which("docker"))
    yield compose(shutil.which("docker"))


def python(python_version: tuple[int, ...]) -> Check:
    """Check whether keplab runs on this Python."""
    text = f"{'.'.join(map(str, python_version))} on {platform.system()}"
    if python_version[:2] < PYTHON_MIN:
        return Check("python", FAIL, text, "install Python 3.11 or newer")
    if python_version[:2] > PYTHON_TRIED:
        return Check("python", WARN, text, f"tried up to {'.'.join(map(str, PYTHON_TRIED))}")
    return Check("python", OK, text)


def libraries(lock: Path) -> Check:
    """Check whether the libraries are installed, in the lock's versions where there is a lock (in the repository)."""
    wanted: dict[str, str] = {}
    if lock.exists():
        wanted = dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)(?=\s*(?:\\|$))", lock.read_text(), re.M))
    else:
        names = (re.match(r"[A-Za-z0-9_.-]+", each) for each in requires("keplab") or () if "extra ==" not in each)
        wanted = dict.fromkeys((each[0] for each in names if each), "")
    missing, other = [], []
    for name, locked in sorted(wanted.items()):
        try:
            installed_version = version(name)
        except PackageNotFoundError:
            missing.append(name)
        else:
            other += [f"{name} {installed_version} (lock: {locked})"] if locked and installed_version != locked else []
    if missing:
        return Check("libraries", FAIL, f"missing: {', '.join(missing)}", "pip install --force-reinstall keplab")
    if other:
        again = "pip install --require-hashes -r requirements.lock"
        return Check("libraries", WARN, f"{len(other)} of {len(wanted)} differ: {', '.join(other[:5])}", again)
    return Check("libraries", OK, f"{len(wanted)} as {'locked' if lock.exists() else 'required'}")


def loopback() -> Check:
    """Check whether a server can listen on a port of 127.0.0.1 and be reached there."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), ASKED_MAX_S):
                return Check("ports", OK, "127.0.0.1 has free ports, and they can be reached")
    except OSError as error:
        return Check("ports", FAIL, f"127.0.0.1: {error}", "a mesh listens there; allow it in sandbox or firewall")


def proxies(environ: Mapping[str, str]) -> Check:
    """Check whether requests to 127.0.0.1 go there, and not to a proxy."""
    given = {name.lower(): value for name, value in environ.items() if name.lower().endswith("_proxy") and value}
    used = [name for name in PROXIES if given.get(name)]
    if not used:
        return Check("proxies", OK, "none is set")
    direct = {each.strip().lstrip(".") for each in given.get("no_proxy", "").split(",")}
    if "*" in direct or {"127.0.0.1", "localhost"} <= direct:
        return Check("proxies", OK, f"{', '.join(used)}, not for 127.0.0.1")
    remedy = "export NO_PROXY=127.0.0.1,localhost"
    return Check("proxies", FAIL, f"{', '.join(used)} set, also for 127.0.0.1, where the mesh is", remedy)


def proc(path: Path) -> Check:
    """Check whether the kernel shows the memory and open files of processes."""
    if (path / "self" / "stat").exists():
        return Check("/proc", OK, "there")
    return Check(
        "/proc", WARN, "not there", "simulations need none; memory and files of a mesh's processes are not shown"
    )


def disk(data: Path, free_of: Callable[[Path], int]) -> Check:
    """Check whether the disk of the data folder has enough free space."""
    place = data.absolute()
    while not place.exists():
        place = place.parent
    free = free_of(place)
    text = f"{free // MIB} MiB free in {place}"
    if free < DISK_MIN:
        return Check(
            "disk", FAIL, text, "make space, or choose another folder with --data: a store without is read-only"
        )
    return Check("disk", OK, text) if free >= DISK_ENOUGH else Check("disk", WARN, text, "little for a mesh under load")


def open_files(limit: int) -> Check:
    """Check whether a process may open as many files and sockets as a large mesh needs."""
    if limit == resource.RLIM_INFINITY or limit >= FILES_ENOUGH:
        return Check("open files", OK, "unlimited" if limit == resource.RLIM_INFINITY else f"at most {limit}")
    status = FAIL if limit < FILES_MIN else WARN
    return Check("open files", status, f"at most {limit}", f"ulimit -n {2 * FILES_ENOUGH}, for meshes of many nodes")


def clock(now_s: float) -> Check:
    """Check whether the clock is later than the installation: certificates are not valid before their signing."""
    made_s = Path(__file__).stat().st_mtime
    text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s))
    if now_s < made_s - 60:
        return Check(
            "clock", FAIL, f"{text}, before keplab was installed", "set it: certificates would not be good yet"
        )
    return Check("clock", OK, text)


def data_folder(data: Path) -> Check:
    """Check whether the data folder can be written, and only by its owner: it holds keys."""
    name = f"data folder {data}"
    if not data.exists():
        place = data.absolute().parent
        while not place.exists():
            place = place.parent
        can = os.access(place, os.W_OK | os.X_OK)
        if can:
            return Check(name, OK, "not there yet, can be made")
        return Check(name, FAIL, f"cannot be made: {place} is not writable", "choose another with --data")
    if not data.is_dir() or not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        return Check(name, FAIL, "is no folder that can be read and written", "choose another with --data")
    mode = stat.S_IMODE(data.stat().st_mode)
    pid = mesh_directory.holder(data)
    runs = f"a mesh runs on it (pid {pid})" if pid else "no mesh runs on it"
    if mode & 0o077:
        return Check(name, WARN, f"{runs}; others may enter ({mode:o})", f"chmod go-rwx {data}")
    return Check(name, OK, runs)


def kubectl(path: str | None) -> Check:
    """Check whether there is a kubectl within one minor version of the release that keplab follows."""
    if path is None:
        return Check("kubectl", WARN, "not on the PATH", f"install {FOLLOWED} or a neighbour: nothing else needs it")
    try:
        client_version = json.loads(_program_output(path, "version", "--client", "-o", "json"))["clientVersion"][
            "gitVersion"
        ]
        minor = int(client_version.split(".")[1])
    except (OSError, subprocess.SubprocessError, ValueError, LookupError) as error:
        return Check("kubectl", WARN, f"{path} does not say its version: {type(error).__name__}", "reinstall it")
    skew = abs(minor - int(FOLLOWED.split(".")[1]))
    if skew > 1:
        remedy = "upstream supports a skew of one minor version"
        return Check("kubectl", WARN, f"{client_version}, and the API server is {FOLLOWED}", remedy)
    return Check("kubectl", OK, f"{client_version}, for an API server {FOLLOWED}")


def docker(path: str | None) -> Check:
    """Check whether a Docker engine answers, for the mesh in containers."""
    if path is None:
        return Check("docker", WARN, "not on the PATH", "only the mesh in containers needs it")
    try:
        return Check("docker", OK, f"engine {_program_output(path, 'info', '--format', '{{.ServerVersion}}').strip()}")
    except (OSError, subprocess.SubprocessError):
        return Check(
            "docker", WARN, "no engine answers", "start it, or join the group docker, for the mesh in containers"
        )


def compose(path: str | None) -> Check:
    """Check whether docker has its compose plugin."""
    try:
        return Check("docker compose", OK, _program_output(path or "docker", "compose", "version", "--short").strip())
    except (OSError, subprocess.SubprocessError):
        return Check("docker compose", WARN, "not there", "install the plugin, for the mesh in containers")


def _program_output(*command: str) -> str:
    """Return what a program prints. Raises: OSError, SubprocessError."""
    return subprocess.run(command, capture_output=True, text=True, timeout=ASKED_MAX_S, check=True).stdout
