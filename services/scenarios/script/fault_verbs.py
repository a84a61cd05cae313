"""What a scenario may break: processes, links, disks, clocks, and the machines that nodes are. One function a verb.

Names of components may be globs, and `node/n1..n3` names the ways of single nodes. What is broken of a component is
healed by the same verb without options, what is wrong with a node by `heal`.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from kubelet.agent.node_files import FAULTS, POWER, STATIC_PODS
from kubelet.node.health import NodeFaults, parse_node_faults
from kubelet.runtime.script import FORM
from services.api.switches import Switches
from services.client.link_faults import LinkFaults
from services.runtime.machine import disk_error
from services.scenarios.corruption import corrupted
from services.scenarios.mesh import Site
from services.scenarios.script.context import ScenarioContext, beside, named, one, substitute
from services.scenarios.script.scenario import Step, parse_duration, parse_names
from services.scenarios.script.workload import pairs
from services.scenarios.switch_readers import check_readers

STARVED_PERIOD_S = 0.5
LOOK_S = 0.05
_OPTIONS = {
    "kill": {"down", "at", "count"},
    "pause": {"for", "at", "count"},
    "link": {"cut", "slow", "watch-delay", "loss", "duplicate", "drop", "late"},
    "clock": {"by"},
    "disk": {"error", "slow"},
    "reboot": {"down"},
    "corrupt": {"how", "what"},
    "starve": {"share", "for"},
    "ended": {"code", "limit"},
}


_Work = Callable[[str], Coroutine[None, None, None]]
"""What is done to a component."""


def _components(context: ScenarioContext, step: Step) -> list[str]:
    word = substitute(context, one(step, "a component"))
    kind, _, names = word.partition("/")
    if kind == "node":
        return [f"node/{name}" for name in parse_names(names)]
    return [name for name in context.mesh.components() if fnmatchcase(name, word)] or [word]


async def _all(context: ScenarioContext, step: Step, work: _Work) -> None:
    """Do the work for every component in one instant, and return when it is done."""
    await asyncio.gather(*(work(name) for name in _components(context, step)))


async def _meanwhile(context: ScenarioContext, step: Step, work: _Work) -> None:
    """Do the work for every component while the scenario goes on; where it waits for a site, that has to come."""
    tasks = [asyncio.create_task(work(name)) for name in _components(context, step)]
    context.background += tasks
    if "at" in step.options:
        context.planned += [(step, task) for task in tasks]
    await asyncio.sleep(0)
    for task in tasks:
        if task.done():
            task.result()  # what cannot be done is a mistake of the scenario


def _site(step: Step) -> Site | None:
    name = step.options.get("at")
    return Site(name, int(step.options.get("count", "1"))) if name else None


async def kill(context: ScenarioContext, step: Step) -> None:
    """`kill COMPONENT [down=5s] [at=SITE] [count=N]`: SIGKILL; its supervisor brings it back, not before `down`.

    A glob kills all that match in one instant: `kill *` is a power cut. With `at` the scenario goes on, and the
    component dies at its N-th passing of an event of its log or of `before:` or `after:` a call, such as
    `before:pods/status`.
    """
    down, site = step.options.get("down"), _site(step)
    down_s = parse_duration(down) if down else None
    perform = _all if site is None else _meanwhile
    await perform(context, step, lambda name: context.mesh.kill(name, down_s, site))


async def restart(context: ScenarioContext, step: Step) -> None:
    """`restart COMPONENT [with SWITCH=VALUE …]`: SIGTERM; the scenario goes on when its successor is ready.

    What follows `with` that process has from now on, over what the scenario sets for all, until it is restarted with
    another value: so a feature gate goes off and on again in one component.
    """
    switches = tuple(f"{name}={value}" for name, value in step.options.items())
    names = _components(context, replace(step, args=step.args[:1]))
    for name in names:
        check_readers(name, switches)
    await asyncio.gather(*(context.mesh.restart(name, switches) for name in names))


async def pause(context: ScenarioContext, step: Step) -> None:
    """`pause COMPONENT for=5s [at=SITE] [count=N]`: stopped meanwhile, the scenario goes on."""
    duration_s, site = parse_duration(step.options["for"]), _site(step)
    await _meanwhile(context, step, lambda name: context.mesh.pause(name, duration_s, site))


async def reboot(context: ScenarioContext, step: Step) -> None:
    """`reboot kubelet/NODE [down=5s]`: the machine crashes and boots: what ran on its nodes is gone."""
    down_s = parse_duration(step.options.get("down", "0s"))
    await _all(context, step, lambda name: context.mesh.reboot(name, down_s))


async def corrupt(context: ScenarioContext, step: Step) -> None:
    """`corrupt kubelet/NODE how=missing|truncated|foreign [what=checkpoint|runtime]`: it dies, and loses this. The
    checkpoint is what the kubelet decided about its pods; the runtime's record is what runs."""
    how, what = step.options["how"], step.options.get("what", "checkpoint")
    await _all(context, step, lambda name: context.mesh.corrupt(name, how, what))


async def link(context: ScenarioContext, step: Step) -> None:
    """`link COMPONENT [cut=requests|replies|both] [slow=1s] [watch-delay=2s] [loss=0.1] [duplicate=0.1] [drop=SORT,…]`.

    `link node/n1 …` is about that node alone. `drop` loses calls of some sorts: lease, node-status, pod-status, unbind.
    `link node/n1 late=unbind:15s` holds them up: they arrive so much later, even if the kubelet is dead by then.
    """
    faults = _faults(step)
    for name in _components(context, step):
        context.mesh.link(name, faults)


def _faults(step: Step) -> LinkFaults:
    options = step.options
    faults = LinkFaults(
        cut=options.get("cut", ""),
        slow_s=parse_duration(options.get("slow", "0s")),
        watch_delay_s=parse_duration(options.get("watch-delay", "0s")),
        loss=float(options.get("loss", "0")),
        duplicate=float(options.get("duplicate", "0")),
        drop=tuple(options["drop"].split(",")) if "drop" in options else (),
        late={sort: parse_duration(late) for sort, late in pairs(options.get("late", "")).items()},
    )
    faults.check()
    faults.check_component(step.args[0])
    return faults


async def clock(context: ScenarioContext, step: Step) -> None:
    """`clock COMPONENT [by=+1h]`: its wall clock is off by so much, from now on."""
    offset_s = _offset_s(step)
    for name in _components(context, step):
        context.mesh.set_clock(name, offset_s)


def _offset_s(step: Step) -> float:
    text = step.options.get("by", "0s")
    return parse_duration(text.lstrip("+-")) * (-1.0 if text.startswith("-") else 1.0)


async def disk(context: ScenarioContext, step: Step) -> None:
    """`disk COMPONENT [error=ENOSPC|EIO] [slow=200ms]`: its syncs fail, or take longer."""
    slow_s = parse_duration(step.options.get("slow", "0s"))
    for name in _components(context, step):
        context.mesh.set_disk(name, step.options.get("error", ""), slow_s)


async def starve(context: ScenarioContext, step: Step) -> None:
    """`starve COMPONENT share=0.2 for=60s`: it runs for this share of every half second; the scenario goes on."""
    share, duration_s = float(step.options["share"]), parse_duration(step.options["for"])

    async def work(name: str) -> None:
        for _ in range(int(duration_s / STARVED_PERIOD_S)):
            await context.mesh.pause(name, STARVED_PERIOD_S * (1.0 - share))
            await asyncio.sleep(STARVED_PERIOD_S * share)

    await _meanwhile(context, step, work)


async def ended(context: ScenarioContext, step: Step) -> None:
    """`ended COMPONENT code=1 [limit=20s]`: expect that it ends by itself, or once has, with that exit code."""
    name, code = substitute(context, one(step, "a component")), int(step.options["code"])
    limit = context.observer.now_s + parse_duration(step.options.get("limit", "20s"))
    while code not in (codes := context.mesh.exit_codes(name)) and context.observer.now_s < limit:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)
    seen = f"ended with {', '.join(map(str, codes))}" if codes else "has not ended by itself"
    context.answers.append((step, code in codes, seen))


async def static_pod(context: ScenarioContext, step: Step) -> None:
    """`static-pod NODE FILE [as=NAME]`: put a manifest, a file beside the scenario, on the node; later ones replace it.
    `static-pod NODE NAME gone`: take it away."""
    node, file, *rest = step.args
    data = None
    if not rest:
        path = beside(context, file)
        if not path.is_file():
            raise ValueError(f"there is no file {file!r} beside the scenario")
        data = path.read_bytes()
    await context.mesh.put_file(node, f"{STATIC_PODS}/{step.options.get('as') or Path(file).name}", data)


async def fault(context: ScenarioContext, step: Step) -> None:
    """`fault NODE CLAUSES`: that is wrong with it from now on, until `heal NODE` (`kubelet/node/health.py`)."""
    node, _, clauses = step.rest.partition(" ")
    await context.mesh.put_file(node, FAULTS, clauses.encode())


async def heal(context: ScenarioContext, step: Step) -> None:
    """`heal NODE`: nothing is wrong with it any more, apart from what its definition says."""
    await context.mesh.put_file(step.args[0], FAULTS, None)


async def shutdown(context: ScenarioContext, step: Step) -> None:
    """`shutdown NODE`: its pods are ended in good order if its definition gives them time; then it is off."""
    await context.mesh.put_file(step.args[0], POWER, b"shutdown")


async def poweroff(context: ScenarioContext, step: Step) -> None:
    """`poweroff NODE`: it has no power from now on."""
    await context.mesh.put_file(step.args[0], POWER, b"off")


async def boot(context: ScenarioContext, step: Step) -> None:
    """`boot NODE`: it boots, whether or not it was off; what ran is gone."""
    await context.mesh.put_file(step.args[0], POWER, f"on {step.line}".encode())


VERBS = named(kill, restart, pause, reboot, link, clock, disk, corrupt, starve, ended) | named(
    static_pod, fault, heal, shutdown, poweroff, boot
)


def check(step: Step) -> None:
    """Raise ValueError for a mistake that can be seen before anything starts."""
    match step.verb:
        case "static-pod":
            if len(step.args) not in (2, 3) or step.args[2:] not in ((), ("gone",)) or step.options.keys() - {"as"}:
                raise ValueError("want: static-pod NODE FILE [as=NAME], or static-pod NODE NAME gone")
        case "fault":
            node, _, clauses = step.rest.partition(" ")
            if parse_node_faults(clauses) == NodeFaults():
                raise ValueError(f"fault {node}: {FORM}")
        case "restart":
            _check_restart(step)
        case "heal" | "shutdown" | "poweroff" | "boot" if len(step.args) != 1:
            raise ValueError(f"{step.verb} wants a node")
        case verb if verb in _OPTIONS:
            _check_component(step)


def _check_restart(step: Step) -> None:
    if not step.args or step.args[1:] != (("with",) if step.options else ()) or step.args[0].startswith("node/"):
        raise ValueError("want: restart COMPONENT, or restart COMPONENT with SWITCH=VALUE …")
    switches = tuple(f"{name}={value}" for name, value in step.options.items())
    Switches.parse(switches)
    if not set(step.args[0]) & set("*?["):
        check_readers(step.args[0], switches)


def _check_component(step: Step) -> None:
    if len(step.args) != 1:
        raise ValueError(f"{step.verb} wants a component, or *")
    known = _OPTIONS[step.verb]
    if unknown := [name for name in step.options if name not in known]:
        raise ValueError(f"{step.verb} has no option {unknown[0]!r}; there are: {', '.join(sorted(known))}")
    if not re.fullmatch(r"[1-9]\d*", step.options.get("count", "1")):
        raise ValueError(f"count={step.options['count']}: want a number from 1")
    for option in ("down", "for", "limit"):
        if option in step.options:
            parse_duration(step.options[option])
    match step.verb:
        case "link":
            _faults(step)
        case "clock":
            _offset_s(step)
        case "disk":
            disk_error(step.options.get("error", ""))
            parse_duration(step.options.get("slow", "0s"))
        case "corrupt":
            corrupted({}, step.options.get("how", ""), step.options.get("what", "checkpoint"))
        case "starve" if not 0.0 < float(step.options.get("share", "0")) < 1.0:
            raise ValueError(f"share={step.options.get('share')}: want more than 0 and less than 1")
        case "pause" | "starve" if "for" not in step.options:
            raise ValueError(f"{step.verb} wants for=DURATION")
        case "ended" if not step.options.get("code", "").isdecimal():
            raise ValueError(f"code={step.options.get('code', '')}: want an exit code: ended scheduler code=1")
