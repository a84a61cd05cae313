"""Real parts of Kubernetes for the tests: kubectl as two Debian releases package it, and etcd.

    python tests/interop/parts.py        # fetch all, say where they are

`kubectl(suite)` and `etcd()` return the path of a binary in the cache folder (`$KEPLAB_PARTS`, else
`keplab/parts` in the user's cache folder, which all working trees share). What is not there is fetched with apt-get into a package root of its own: nothing is installed on
the machine, its package lists are not touched, and Debian's signatures are checked.
"""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

KUBECTLS = {"trixie": "v1.32.", "forky": "v1.36."}
"""Debian suite to the version its kubectl has."""
ETCD_SUITE = "trixie"
"""Its etcd-server is 3.5, which kube-apiserver 1.32 to 1.36 run over."""
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCES = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
"""Where this machine says which Debian mirror it uses."""
FETCH_MAX_S = 180


class NotToBeHadError(Exception):
    """A part that cannot be fetched here; the text says why in one line."""


def mirror() -> str:
    """Return the Debian mirror this machine is set up with. Raises: NotToBeHadError when it has none."""
    for path in SOURCES:
        text = path.read_text() if path.exists() else ""
        found = re.search(r"^(?:URIs: |deb (?:\[[^]]*\] )?)(\S+/debian)/?(?:\s|$)", text, re.M)
        if found:
            return found[1]
    raise NotToBeHadError("no Debian mirror is set up on this machine")


def folder() -> Path:
    """Return the cache folder, made if need be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = Path(os.environ.get("KEPLAB_PARTS") or cache / "keplab" / "parts")
    path.mkdir(parents=True, exist_ok=True)
    return path


def kubectl(suite: str) -> Path:
    """Return that suite's kubectl, fetched once. Raises: NotToBeHadError."""
    home = folder()
    binary = home / f"kubectl-{suite}"
    with locked(home / "lock"):
        if not binary.exists():
            _fetch(suite, "kubectl", home / f"apt-{suite}", "usr/bin/kubectl", binary)
    return binary


def etcd() -> Path:
    """Return etcd, fetched once; what is on the PATH goes before. Raises: NotToBeHadError."""
    if found := shutil.which("etcd"):
        return Path(found)
    home = folder()
    binary = home / "etcd"
    with locked(home / "lock"):
        if not binary.exists():
            _fetch(ETCD_SUITE, "etcd-server", home / f"apt-etcd-{ETCD_SUITE}", "usr/bin/etcd", binary)
    return binary


@contextlib.contextmanager
def locked(path: Path):
    """Hold a file lock: parallel test workers fetch once."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(suite: str, package: str, root: Path, inside: str, binary: Path) -> None:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise NotToBeHadError(f"{package} from Debian {suite}: this machine has no {tool}")
    if not Path(KEYRING).exists():
        raise NotToBeHadError(f"{package} from Debian {suite}: no Debian archive keyring here")
    for name in ("lists/partial", "cache/archives/partial", "etc", "unpacked"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "status").touch()
    (root / "etc/sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} {suite} main\n")
    settings = {
        "Dir::Etc::sourcelist": root / "etc/sources.list",
        "Dir::Etc::sourceparts": root / "etc/none",
        "Dir::Etc::preferences": root / "etc/none",
        "Dir::Etc::preferencesparts": root / "etc/none",
        # An empty status file: a kubectl that is installed from elsewhere must not be preferred.
        "Dir::State::status": root / "status",
        "Dir::State::Lists": root / "lists",
        "Dir::Cache": root / "cache",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Acquire::Retries": "1",
        "Acquire::http::Timeout": "20",
    }
    apt = ["apt-get", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    try:
        _run([*apt, "update"], root)
        _run([*apt, "download", package], root)
        archive = next(root.glob(f"{package}_*.deb"))
        _run(["dpkg-deb", "-x", str(archive), str(root / "unpacked")], root)
        shutil.copy(root / "unpacked" / inside, binary.with_suffix(".new"))
        binary.with_suffix(".new").replace(binary)
    except (subprocess.SubprocessError, OSError, StopIteration) as error:
        text = getattr(error, "stderr", None) or str(error) or type(error).__name__
        raise NotToBeHadError(f"{package} from Debian {suite}: {text.strip().splitlines()[-1][:200]}") from error
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _run(command: list[str], cwd: Path) -> None:
    subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, timeout=FETCH_MAX_S)


if __name__ == "__main__":
    for each in KUBECTLS:
        try:
            sys.stdout.write(f"{each}: {kubectl(each)}\n")
        except NotToBeHadError as error:
            sys.stdout.write(f"{error}\n")
    try:
        sys.stdout.write(f"etcd: {etcd()}\n")
    except NotToBeHadError as error:
        sys.stdout.write(f"{error}\n")
