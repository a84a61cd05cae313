"""What the compose tests stand on: an engine, compose of either generation, images made where none can be pulled.

What is missing is said in one line (`NotHereError`), and the tests skip with it.
"""

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from tests.interop import parts

ROOT = Path(__file__).resolve().parents[2]
PARTS = parts.folder()
BASE_OFFICIAL, BASE_OWN = "python:3.11-slim", "keplab-base:bookworm"
JAEGER, PROMETHEUS = "jaegertracing/jaeger:2.13.0", "prom/prometheus:v3.5.0"
ETCD_OFFICIAL, ETCD_OWN = "registry.k8s.io/etcd:3.5.16-0", "keplab-etcd:test"
ETCD_SUITE = "trixie"
"""Its etcd is 3.5.16, too."""
BUILD_MAX_S, COMMAND_MAX_S = 600, 180


class NotHereError(Exception):
    """The machine lacks something; the text says what, in one line."""


def docker_client() -> str:
    """Return the path of a client whose engine answers. Raises: NotHereError."""
    # The distribution's own first: what comes before it on the PATH may be something else by the same name.
    found = [path for path in ("/usr/bin/docker", shutil.which("docker")) if path and Path(path).exists()]
    for path in found:
        if run([path, "info"], check=False, timeout=30).returncode == 0:
            return path
    raise NotHereError("no Docker engine answers here" + ("" if found else ": there is no docker client either"))


def run(command, *, check=True, timeout=COMMAND_MAX_S, environ=None, text=True):
    done = subprocess.run(
        command, capture_output=True, text=text, timeout=timeout, cwd=ROOT, env={**os.environ, **(environ or {})}
    )
    if check and done.returncode:
        raise AssertionError(
            f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}"[-3000:]
        )
    return done


@contextlib.contextmanager
def unpacked(suite, prefix, *packages):
    """Yield the folder below which Debian packages are unpacked, of those only whose name begins so. Raises:
    NotHereError."""
    folder = PARTS / f"unpacked-{packages[0]}"
    done = run(
        [ROOT / "deploy/debian-packages.sh", suite, folder, "--only", prefix, *packages],
        check=False,
        timeout=BUILD_MAX_S,
    )
    try:
        if done.returncode:
            raise NotHereError(f"{packages[0]} is not here, nor can it be fetched: {done.stderr.strip()[-200:]}")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Engine:
    """One Docker engine and its compose, with everything the mesh's compose file needs."""

    def __init__(self) -> None:
        self.docker_path = docker_client()
        self.environ: dict[str, str] = {}
        self.compose_command = self._compose()

    def docker(self, *words, check=True, timeout=COMMAND_MAX_S):
        """Return what it printed."""
        return run([self.docker_path, *words], check=check, timeout=timeout, environ=self.environ).stdout.strip()

    def inspect(self, thing):
        return json.loads(self.docker("inspect", thing))[0]

    def has_image(self, name):
        return run([self.docker_path, "image", "inspect", name], check=False).returncode == 0

    def can_pull(self, name):
        return (
            self.has_image(name)
            or run([self.docker_path, "pull", "-q", name], check=False, timeout=600).returncode == 0
        )

    def _compose(self):
        if chosen := os.environ.get("KEPLAB_COMPOSE"):
            return chosen.split()
        if run([self.docker_path, "compose", "version"], check=False).returncode == 0:
            return [self.docker_path, "compose"]
        if shutil.which("docker-compose"):
            return ["docker-compose"]
        plugins = PARTS / "docker" / "cli-plugins"
        if not plugins.exists():
            self._fetch_compose(plugins)
        self.environ["DOCKER_CONFIG"] = str(plugins.parent)
        return [self.docker_path, "compose"]

    def _fetch_compose(self, plugins):
        with unpacked("forky", "docker-", "docker-compose", "docker-buildx") as found:
            shutil.copytree(found / "usr/libexec/docker/cli-plugins", plugins)

    def etcd_image(self, directory: Path) -> str:
        """Return the name of an image of etcd that is here or can be; a new one is built in that directory. Raises:
        NotHereError."""
        if chosen := os.environ.get("KEPLAB_ETCD_IMAGE"):
            return chosen
        if self.can_pull(ETCD_OFFICIAL):
            return ETCD_OFFICIAL
        context, programs = directory / "etcd", PARTS / "etcd-image"
        if not programs.exists():
            with unpacked(ETCD_SUITE, "etcd-", "etcd-server", "etcd-client") as found:
                shutil.copytree(found / "usr/bin", programs)
        shutil.copytree(ROOT / "tests/compose/etcd", context)
        for name in ("etcd", "etcdctl"):
            shutil.copy(programs / name, context / name)
        self.docker("build", "-q", "--build-arg", f"BASE={self.base()}", "-t", ETCD_OWN, str(context))
        return ETCD_OWN

    def base(self) -> str:
        """Return the name of a base image that is here or can be. Raises: NotHereError."""
        if chosen := os.environ.get("KEPLAB_BASE"):
            return chosen
        must_make = os.environ.get("KEPLAB_MAKE_BASE") == "1"
        if not must_make and self.has_image(BASE_OWN):
            return BASE_OWN
        if not must_make and self.can_pull(BASE_OFFICIAL):
            return BASE_OFFICIAL
        if shutil.which("debootstrap") is None or os.geteuid() != 0:
            raise NotHereError(f"{BASE_OFFICIAL} cannot be pulled, and making a base image needs debootstrap and root")
        environ = {"DOCKER": self.docker_path}
        run([ROOT / "deploy/base-image.sh", BASE_OWN], timeout=BUILD_MAX_S, environ=environ)
        return BASE_OWN
