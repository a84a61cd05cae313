"""What a container does: what its annotation says in the words of `script`, else its command; and its hooks. Pure.

Without annotation, `sleep N`, `true`, `false` and `exit N` in command and args are understood, in hooks too.
"""

import math
import re
from functools import lru_cache

import msgspec

from kubelet.runtime.script import DONE, FOREVER, Hook, Script, ScriptError, duration_s, is_duration, parse_script
from kubelet.view import KubeletContainer, LifecycleHandler
from services.api.kinds.pod import Pod

ANNOTATION = "keplab.dev/run"


def script_of(pod: Pod, container: KubeletContainer, *, is_init: bool, is_ephemeral: bool = False) -> Script:
    """Return what this container does; its hooks do what the spec says of them where no clause says otherwise."""
    script = _script_of(pod, container, is_init, is_ephemeral)
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
    text = annotations.get(f"{ANNOTATION}.{container.name}")
    if text is None and not is_init and not is_ephemeral:
        text = annotations.get(ANNOTATION)
    if text is not None:
        try:
            return parse_script(text)
        except ScriptError:
            return default
    words = container.command + container.args
    return _of_command(words, default) if words else default


@lru_cache(maxsize=1024)
def _of_command(words: tuple[str, ...], default: Script) -> Script:
    """Return what a few well known commands do; anything else does what `default` says."""
    if len(words) >= 3 and words[0].rpartition("/")[2] in ("sh", "bash", "ash") and words[1] == "-c":
        line = " ".join(words[2:])
    else:
        line = " ".join(words)
    total, code, seen = 0.0, 0, False
    for part in re.split(r"\s*(?:;|&&)\s*", line.strip()):
        match part.split():
            case ["sleep", "infinity" | "inf"]:
                return FOREVER
            case [("sleep" | "/bin/sleep"), length] if is_duration(length):
                total, seen = total + duration_s(length), True
            case ["exit", text] if text.isdigit():
                return Script(exit_after_s=total, exit_code=int(text) & 255)
            case ["true"]:
                seen = True
            case ["false"]:
                code, seen = 1, True
            case ["echo", *_]:
                pass
            case _:
                return default
    return Script(exit_after_s=total, exit_code=code) if seen else default
