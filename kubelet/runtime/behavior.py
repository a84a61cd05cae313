"""The behaviour of a container: from its annotation (`script`), else from its command; and its hooks. Pure.

Without an annotation, a command whose programs are in the table of `commands` takes its time and ends as it
would; this holds for hooks too. A command that reads a terminal waits until a client is attached.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from kubelet.runtime import commands
from kubelet.runtime.outcome import PATH, OutputPiece
from kubelet.runtime.script import DONE, FOREVER, Hook, Script, ScriptError, parse_script
from kubelet.view import KubeletContainer, KubeletPod, LifecycleHandler
from services.api.kinds.pod import RUN, Pod

SERVERS = frozenset(
    (
        "caddy",
        "cassandra",
        "consul",
        "elasticsearch",
        "etcd",
        "grafana",
        "haproxy",
        "httpd",
        "influxdb",
        "jenkins",
        "kafka",
        "mariadb",
        "memcached",
        "minio",
        "mongo",
        "mysql",
        "nats",
        "nginx",
        "pause",
        "postgres",
        "prometheus",
        "rabbitmq",
        "redis",
        "registry",
        "tomcat",
        "traefik",
        "vault",
        "wordpress",
        "zookeeper",
    )
)
"""Images that run until they are stopped, whatever their pod's restart policy."""


def script_of(
    pod: Pod, container: KubeletContainer, *, is_init: bool, is_ephemeral: bool = False, completion_s: float = 0.0
) -> Script:
    """Return the container's script; its hooks follow the spec where no clause describes them.

    `completion_s`: in a pod that does not restart always, a container with an unknown command ends with 0 after
    so many seconds, unless its image is a server's (a Job is made to end); 0: it runs on.
    """
    script = _script_of(pod, container, is_init, is_ephemeral)
    if completion_s and _completes(pod, container, script):
        script = Script(exit_after_s=completion_s, exit_code=0)
    hooks = container.lifecycle
    if hooks is None:
        return script
    if hooks.pre_stop is not None and not script.prestop_s and not script.prestop_fails:
        hook = _hook_of(hooks.pre_stop)
        script = msgspec.structs.replace(script, prestop_s=hook.takes_s, prestop_fails=hook.fails)
    if hooks.post_start is not None:
        hook = _hook_of(hooks.post_start)
        if (clause := script.poststart) is not None:
            hook = msgspec.structs.replace(hook, takes_s=clause.takes_s, fails=clause.fails)
        script = msgspec.structs.replace(script, poststart=hook)
    return script


def _completes(pod: Pod, container: KubeletContainer, script: Script) -> bool:
    """Whether nothing is known of a container but that its pod is to end."""
    annotations = pod.metadata.annotations
    is_said = RUN in annotations or f"{RUN}.{container.name}" in annotations
    if script is not FOREVER or is_said or container.stdin or pod.spec.restart_policy == "Always":
        return False
    words = container.command + container.args
    if words and not commands.run(words, dict(literal_environment(container))).unknown:
        return False  # it is known, and goes on
    return container.image.rpartition("/")[2].partition("@")[0].partition(":")[0] not in SERVERS


def _hook_of(handler: LifecycleHandler) -> Hook:
    """Return what a hook does, as far as it is understood."""
    if handler.exec is not None:
        words = handler.exec.command
        does = _of_command(words, DONE) if words else DONE
        takes_s = math.inf if does.exit_after_s is None else does.exit_after_s
        error = f"command '{' '.join(words)}' exited with {does.exit_code or 1}: "
        return Hook(takes_s, does.exit_code != 0, "Exec", f"[{' '.join(words)}]", error)
    if handler.http_get is not None:
        path = handler.http_get.path
        return Hook(0.0, kind="HTTP", what=path, error=f'Get "{path}": dial tcp: connect: connection refused')
    if handler.sleep is not None:
        seconds = handler.sleep.seconds
        error = "container terminated before sleep hook finished"
        return Hook(float(seconds), kind="Sleep", what=str(seconds), error=error)
    return Hook(0.0, fails=True, kind="", error="invalid handler: tcpSocket")


def _script_of(pod: Pod, container: KubeletContainer, is_init: bool, is_ephemeral: bool) -> Script:
    # One whose annotation cannot be read does what it would without.
    default = DONE if is_init and container.restart_policy != "Always" else FOREVER
    annotations = pod.metadata.annotations
    text = annotations.get(f"{RUN}.{container.name}")
    if text is None and not is_init and not is_ephemeral:
        text = annotations.get(RUN)
    if text is not None:
        try:
            return parse_script(text)
        except ScriptError:
            return default
    words = container.command + container.args
    if not words or container.stdin:
        return default
    return _of_command(words, default, literal_environment(container))


def command_output(
    pod: KubeletPod, name: str, environment: Mapping[str, str], started_s: float, age_s: float
) -> Sequence[OutputPiece] | None:
    """Return the output of a container's command in its first `age_s` seconds.

    None if the annotation describes the container, or if the command is not known. `started_s`: wall seconds.
    """
    spec = pod.spec
    container = next(
        (c for c in (*spec.containers, *spec.init_containers, *spec.ephemeral_containers) if c.name == name), None
    )
    annotations = pod.metadata.annotations
    if container is None or f"{RUN}.{name}" in annotations:
        return None
    if container in spec.containers and RUN in annotations:
        return None
    if container.stdin:
        return ()  # a client that is attached sees what it writes
    if not container.command + container.args:
        return None
    words = container.command + container.args
    return _run_command(words, tuple(environment.items()), pod.metadata.name, started_s, age_s)


@lru_cache(maxsize=64)
def _run_command(
    words: tuple[str, ...], environment: tuple[tuple[str, str], ...], hostname: str, started_s: float, age_s: float
) -> Sequence[OutputPiece] | None:
    outcome = commands.run(words, dict(environment), wall_s=started_s, hostname=hostname, until_s=age_s)
    return None if outcome.unknown else outcome.written


def literal_environment(container: KubeletContainer) -> tuple[tuple[str, str], ...]:
    """Return the variables with literal values in the spec, and those that every container has."""
    found = {"PATH": PATH, "HOME": "/root"}
    return tuple({**found, **{each.name: each.value for each in container.env}}.items())


@lru_cache(maxsize=1024)
def _of_command(words: tuple[str, ...], default: Script, environment: tuple[tuple[str, str], ...] = ()) -> Script:
    """Return what a command does as far as its programs are in the table; one with others does what `default` says."""
    outcome = commands.run(words, dict(environment) or None)
    if outcome.unknown:
        return default
    return FOREVER if outcome.exit_code is None else Script(exit_after_s=outcome.seconds, exit_code=outcome.exit_code)
