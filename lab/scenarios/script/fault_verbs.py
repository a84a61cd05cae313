"""Verbs for faults: of processes, links, disks, clocks, and the machines of nodes. One function per verb.

Names of components may be globs, and `node/n1..n3` names the links of single nodes. A component's fault
is healed by the same verb without options, a node's fault by `heal`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Final

from kubelet.agent.node_files import CAPACITY, FAULTS, POWER, STATIC_PODS
from kubelet.node.health import NodeFaults, parse_node_faults
from kubelet.runtime.script import FORM
from lab.scenarios.corruption import DAMAGES, VICTIMS
from lab.scenarios.mesh import Site
from lab.scenarios.script.context import ScenarioContext, file_of, substitute, verb, verbs_in
from lab.scenarios.script.declaration import FILE, Argument, Option
from lab.scenarios.script.scenario import Scenario, Step
from lab.scenarios.script.value_types import (
    CHANCE,
    COUNT,
    DURATION,
    INTEGER,
    NAME,
    OFFSET,
    QUANTITIES,
    QUANTITY,
    SHARE,
    as_type,
    choice,
    parse_duration,
    parse_names,
    parse_pairs,
    suggestion,
)
from lab.scenarios.switch_readers import check_readers
from services.api.resources import resources
from services.api.switches import Switches
from services.api.wire import encode
from services.client.link_faults import CUTS, SORTS, LinkFaults
from services.runtime.components import component_of
from services.telemetry.event_names import EVENTS

TOPIC: Final = "Faults"
OF_NODES: Final = "Nodes"
STARVED_PERIOD_S = 0.5
LOOK_S = 0.05

_Work = Callable[[str], Coroutine[None, None, None]]
"""Action on one component."""
_COMPONENT = Argument("COMPONENT", "a component, a process or a glob: scheduler, kubelet/n1, *")
_NODE = Argument("NODE", "a node")
_DOWN = Option("down", DURATION, "for how long at least it is away", otherwise="its supervisor's back-off")
_AT = Option("at", NAME, "an event of its log, or `before:` or `after:` a call: `before:pods/status`")
_COUNT = Option("count", COUNT, "at which passing of `at`", default="1")


def _components(context: ScenarioContext, step: Step) -> list[str]:
    word = substitute(context, step.args[0])
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


def _check_site(scenario: Scenario, step: Step) -> None:
    """Refuse a site that the component never passes. Raises: ValueError naming what is close to it."""
    at = step.values["at"] or ""
    when, sign, call = at.partition(":")
    if sign:
        calls = [each for name, of in resources().items() for each in (name, *(f"{name}/{s}" for s in of.subresources))]
        is_custom = "." in call and call.partition("/")[0] not in resources()
        if when not in ("before", "after"):
            raise ValueError(f"at={at}: want before: or after: and a call, not {when}:")
        if call not in calls and not is_custom:
            want = "want RESOURCE or RESOURCE/SUBRESOURCE as `keplab get` names them, for example before:pods/binding"
            raise ValueError(f"at={at}: no call is named {call!r}{suggestion(call, calls)}; {want}")
    elif at:
        component = component_of(step.args[0])
        of_component = EVENTS.get(component, tuple(dict.fromkeys(chain.from_iterable(EVENTS.values()))))
        if at not in of_component:
            never = f"{component} never logs {at!r}" if component in EVENTS else f"no component logs {at!r}"
            raise ValueError(f"at={at}: {never}{suggestion(at, of_component)}; want one of {', '.join(of_component)}")


def _site(step: Step) -> Site | None:
    return Site(step.values["at"], step.values["count"]) if step.values["at"] else None


@verb(TOPIC, _COMPONENT, options=(_DOWN, _AT, _COUNT), check=_check_site)
async def kill(context: ScenarioContext, step: Step) -> None:
    """Send SIGKILL to a component; its supervisor restarts it, but not before `down`.

    A glob kills all matching components in one instant: `kill *` is a power cut. With `at` the scenario goes
    on, and the component dies at the N-th occurrence of an event of its log, or of `before:` or `after:` a
    call. A scenario in which that never occurs has failed.
    """
    site = _site(step)
    perform = _all if site is None else _meanwhile
    await perform(context, step, lambda name: context.mesh.kill(name, step.values["down"], site))


def _check_restart(scenario: Scenario, step: Step) -> None:
    if step.args[1:] != (("with",) if step.options else ()) or step.args[0].startswith("node/"):
        raise ValueError("want: restart COMPONENT, or restart COMPONENT with SWITCH=VALUE …")
    switches = tuple(f"{name}={value}" for name, value in step.options.items())
    Switches.parse(switches)
    if not set(step.args[0]) & set("*?["):
        check_readers(step.args[0], switches)


@verb(
    TOPIC,
    _COMPONENT,
    Argument("with", "the word `with`, before switches", count="optional"),
    others=Argument("SWITCH=VALUE", "what it is set to from now on", count="any"),
    form="restart COMPONENT [with SWITCH=VALUE …]",
    check=_check_restart,
)
async def restart(context: ScenarioContext, step: Step) -> None:
    """Send SIGTERM to a component; the scenario goes on when its successor is ready.

    Switches after `with` apply to that process from now on and override those that the scenario sets for all,
    until it is restarted with another value. So a feature gate can be turned off and on again in one
    component.
    """
    switches = tuple(f"{name}={value}" for name, value in step.options.items())
    names = _components(context, replace(step, args=step.args[:1]))
    for name in names:
        check_readers(name, switches)
    await asyncio.gather(*(context.mesh.restart(name, switches) for name in names))


@verb(
    TOPIC, _COMPONENT, options=(Option("for", DURATION, "how long", is_required=True), _AT, _COUNT), check=_check_site
)
async def pause(context: ScenarioContext, step: Step) -> None:
    """Stop a component (SIGSTOP) for a while; the scenario goes on."""
    site = _site(step)
    await _meanwhile(context, step, lambda name: context.mesh.pause(name, step.values["for"], site))


@verb(TOPIC, _COMPONENT, options=(Option("down", DURATION, "how long it is off", default="0s"),))
async def reboot(context: ScenarioContext, step: Step) -> None:
    """Crash and boot the machine of a kubelet: everything that ran on its nodes is gone."""
    await _all(context, step, lambda name: context.mesh.reboot(name, step.values["down"]))


@verb(
    TOPIC,
    _COMPONENT,
    options=(
        Option("how", choice(*DAMAGES), "lost, cut in half, or another machine's", is_required=True),
        Option("what", choice(*VICTIMS), "what is damaged", default="checkpoint"),
    ),
)
async def corrupt(context: ScenarioContext, step: Step) -> None:
    """Kill a kubelet and corrupt a file of its machine before it is back.

    The checkpoint holds the kubelet's decisions about its pods; the runtime's record holds what runs.
    """
    how, what = step.values["how"], step.values["what"]
    await _all(context, step, lambda name: context.mesh.corrupt(name, how, what))


def _sorts(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _late(text: str) -> dict[str, float]:
    return {sort: parse_duration(late) for sort, late in parse_pairs(text).items()}


@verb(
    TOPIC,
    _COMPONENT,
    options=(
        Option("cut", choice(*CUTS[1:]), "what does not arrive at all"),
        Option("slow", DURATION, "added to every message, more or less by half", default="0s"),
        Option("watch-delay", DURATION, "added to watch events alone", default="0s"),
        Option("loss", CHANCE, "of a message to vanish", default="0"),
        Option("duplicate", CHANCE, "of a request to arrive twice", default="0"),
        Option("drop", as_type("CALL,…", _sorts), f"calls that vanish: {', '.join(SORTS)}"),
        Option("late", as_type("CALL:DURATION,…", _late), "calls that arrive later; of a single node's way"),
    ),
    check=lambda scenario, step: _check_link(step),
)
async def link(context: ScenarioContext, step: Step) -> None:
    """Make the link between a component and the API server lose, delay or repeat messages; without options: heal
    it.

    `link node/n1 …` affects that node alone, even if it shares its process with others. Calls that are `late`
    arrive even if the kubelet is dead by then.
    """
    faults = _faults(step)
    for name in _components(context, step):
        context.mesh.link(name, faults)


def _faults(step: Step) -> LinkFaults:
    values = step.values
    return LinkFaults(
        cut=values["cut"] or "",
        slow_s=values["slow"],
        watch_delay_s=values["watch-delay"],
        loss=values["loss"],
        duplicate=values["duplicate"],
        drop=values["drop"] or (),
        late=values["late"] or {},
    )


def _check_link(step: Step) -> None:
    faults = _faults(step)
    faults.check()
    faults.check_component(step.args[0])


@verb(TOPIC, _COMPONENT, options=(Option("by", OFFSET, "how far it is ahead", default="0s"),))
async def clock(context: ScenarioContext, step: Step) -> None:
    """Offset a component's wall clock from now on; without options: heal it."""
    for name in _components(context, step):
        context.mesh.set_clock(name, step.values["by"])


@verb(
    TOPIC,
    _COMPONENT,
    options=(
        Option("error", choice("ENOSPC", "EIO"), "with what they fail"),
        Option("slow", DURATION, "how much longer they take", default="0s"),
    ),
)
async def disk(context: ScenarioContext, step: Step) -> None:
    """Make a component's syncs fail, or take longer; without options: heal it."""
    for name in _components(context, step):
        context.mesh.set_disk(name, step.values["error"] or "", step.values["slow"])


@verb(
    TOPIC,
    _COMPONENT,
    options=(
        Option("share", SHARE, "of every half second in which it runs", is_required=True),
        Option("for", DURATION, "how long", is_required=True),
    ),
)
async def starve(context: ScenarioContext, step: Step) -> None:
    """Let a component run for only a share of every half second; the scenario goes on."""
    share, duration_s = step.values["share"], step.values["for"]

    async def work(name: str) -> None:
        for _ in range(int(duration_s / STARVED_PERIOD_S)):
            await context.mesh.pause(name, STARVED_PERIOD_S * (1.0 - share))
            await asyncio.sleep(STARVED_PERIOD_S * share)

    await _meanwhile(context, step, work)


@verb(
    "Expectations",
    _COMPONENT,
    options=(
        Option("code", INTEGER, "the exit code", is_required=True),
        Option("limit", DURATION, "how long it may take", default="20s"),
    ),
)
async def ended(context: ScenarioContext, step: Step) -> None:
    """Expect that a component ends by itself, or has ended once, with that exit code."""
    name, code = substitute(context, step.args[0]), step.values["code"]
    limit = context.observer.now_s + step.values["limit"]
    while code not in (codes := context.mesh.exit_codes(name)) and context.observer.now_s < limit:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)
    seen = f"ended with {', '.join(map(str, codes))}" if codes else "has not ended by itself"
    context.answers.append((step, code in codes, seen))


def _check_static_pod(scenario: Scenario, step: Step) -> None:
    words = step.args[1:]
    if step.block is not None and words:
        raise ValueError(f"want a block or {words[0]}, not both")
    if step.block is not None and step.values["as"] is None:
        raise ValueError("a block has no name; want static-pod NODE as=NAME.yaml <<EOF")
    if step.block is None and (not words or words[1:] not in ((), ("gone",))):
        raise ValueError("want: static-pod NODE FILE [as=NAME], or static-pod NODE NAME gone")
    if step.block is None and len(words) == 1:
        file_of(scenario, words[0])


@verb(
    OF_NODES,
    _NODE,
    Argument(FILE, "a manifest beside the scenario", count="optional"),
    Argument("gone", "the word `gone`: take away the manifest of that name", count="optional"),
    options=(Option("as", NAME, "its name on the node", otherwise="that of the file"),),
    block="the manifest of a Pod",
    form="static-pod NODE FILE|<<EOF [as=NAME], or static-pod NODE NAME gone",
    check=_check_static_pod,
)
async def static_pod(context: ScenarioContext, step: Step) -> None:
    """Put a static pod's manifest on a node, replacing an earlier one of its name, or remove it."""
    node, *words = step.args
    block = step.block
    if block is None and len(words) == 1:
        block = file_of(context.scenario, words[0])
    name = step.options.get("as") or Path(words[0]).name
    await context.mesh.put_file(node, f"{STATIC_PODS}/{name}", block.text.encode() if block is not None else None)


def _check_fault(scenario: Scenario, step: Step) -> None:
    if parse_node_faults(step.body) == NodeFaults():
        raise ValueError(f"fault {step.args[0]}: {FORM}")


@verb(OF_NODES, _NODE, text=Argument("CLAUSES", "what is wrong, several with `;`"), check=_check_fault)
async def fault(context: ScenarioContext, step: Step) -> None:
    """Inject a fault into a node, until `heal NODE`.

    Clauses: `runtime down [for D]`, `network down [for D]`, `pleg stuck [for D]`, `events broken [N times]`,
    and `STAGE fails [N times] [for D] [chance 0..1]` for a stage of a pod's start (docs/how-to/faults.md).
    """
    await context.mesh.put_file(step.args[0], FAULTS, step.body.encode())


@verb(OF_NODES, _NODE)
async def heal(context: ScenarioContext, step: Step) -> None:
    """Heal all faults of a node, except those in its definition."""
    await context.mesh.put_file(step.args[0], FAULTS, None)


@verb(OF_NODES, _NODE)
async def shutdown(context: ScenarioContext, step: Step) -> None:
    """Shut a node down: its pods end gracefully if its definition gives them time; then it is off."""
    await context.mesh.put_file(step.args[0], POWER, b"shutdown")


@verb(OF_NODES, _NODE)
async def poweroff(context: ScenarioContext, step: Step) -> None:
    """Cut a node's power from now on."""
    await context.mesh.put_file(step.args[0], POWER, b"off")


@verb(OF_NODES, _NODE)
async def boot(context: ScenarioContext, step: Step) -> None:
    """Boot a node, whether or not it was off; everything that ran is gone."""
    await context.mesh.put_file(step.args[0], POWER, f"on {step.line}".encode())


def _check_capacity(scenario: Scenario, step: Step) -> None:
    if not step.options:
        raise ValueError(f"capacity {step.args[0]}: nothing: want one of cpu, memory, disk, pods, extended")


@verb(
    OF_NODES,
    _NODE,
    options=(
        Option("cpu", QUANTITY, "CPUs", otherwise="as defined"),
        Option("memory", QUANTITY, "memory", otherwise="as defined"),
        Option("disk", QUANTITY, "ephemeral storage", otherwise="as defined"),
        Option("pods", COUNT, "how many pods", otherwise="as defined"),
        Option("extended", QUANTITIES, "extended resources", otherwise="as defined"),
    ),
    check=_check_capacity,
)
async def capacity(context: ScenarioContext, step: Step) -> None:
    """Change the resources of a node's machine while it runs, effective within a second.

    Resources that are not given are as the node was defined. Running pods stay. Nodes that allocate single
    CPUs or their memory exclusively do not support it.
    """
    quantities = {
        "ephemeralStorage" if name == "disk" else name: value
        for name, value in step.values.items()
        if name in step.options
    }
    await context.mesh.put_file(step.args[0], CAPACITY, encode(quantities))


VERBS = verbs_in(globals())
