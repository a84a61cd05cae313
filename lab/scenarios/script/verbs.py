"""Verbs of the scenario language: one function per verb, which declares the syntax of its line
(`context.verb`).

Each takes the context (the mesh, the administrator's client, remembered values) and the step. A mistake
in the scenario is a ValueError; the runner adds file and line.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import fields
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

import lab.scenarios.script.fault_verbs as fault_verbs
import lab.scenarios.script.play_verbs as play_verbs
import lab.scenarios.script.workload as workload
from kubelet.control_socket import Away
from kubelet.deviceplugin.emulated.plugin import ACTS as PLUGIN_ACTS
from kubelet.deviceplugin.emulated.plugin import check_act
from kubelet.dra.emulated.driver import ACTS as DRIVER_ACTS
from kubelet.dra.emulated.driver import check_act as check_driver_act
from lab.scenarios.invariants import unrest_of
from lab.scenarios.mesh import identity_named
from lab.scenarios.script.blocks import BlockError, Part, objects_of
from lab.scenarios.script.context import ScenarioContext, Verb, file_of, substitute, verb, verbs_in
from lab.scenarios.script.declaration import FILE, Argument, Option
from lab.scenarios.script.expectation import lookup, no_resource, resource_named
from lab.scenarios.script.operations import patch_type_of
from lab.scenarios.script.scenario import Scenario, ScriptError, Step, parse_scenario
from lab.scenarios.script.value_types import DURATION, INTEGER, SECONDS, choice
from services.api.errors import UNREADABLE, ApiError, NotFound
from services.api.meta import Document, Key, Resource
from services.api.resources import resource_of_kind
from services.api.wire import Request
from services.runtime.components import driver_name

OBJECTS: Final = workload.TOPIC
CHANGES: Final = "Changes"
TIME: Final = "Time and answers"
TOPICS: Final = (
    "Settings",
    OBJECTS,
    CHANGES,
    play_verbs.TOPIC,
    TIME,
    "Expectations",
    fault_verbs.TOPIC,
    fault_verbs.OF_NODES,
)
WORKLOADS = ("replicasets.apps", "deployments.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch")
PLUGIN_BACK_S = 10.0
"""Time for which a scenario waits for a missing device plugin, in seconds."""


def _resource(name: str) -> Resource:
    resource = resource_named(name)
    if resource is None:
        raise ValueError(no_resource(name))
    return resource


async def _object(context: ScenarioContext, word: str) -> tuple[Resource, Key]:
    """Return what `pod/web-0`, `pod/ns/x` or `pod/web-*` (the first that matches now) names."""
    kind, _, rest = word.partition("/")
    resource = _resource(kind)
    namespace, _, name = rest.rpartition("/")
    if not rest:
        raise ValueError(f"{word!r}: want KIND/NAME")
    if "*" in name:
        if not await context.freshness.reach((resource.name,)):
            context.freshness.note_late((resource.name,), word)
        for document in context.observer.documents(resource.name):
            if fnmatchcase(document["metadata"]["name"], name):
                meta = document["metadata"]
                return resource, Key(meta.get("namespace", ""), meta["name"])
        raise ValueError(f"nothing matches {word!r} now")
    return resource, Key((namespace or "default") if resource.namespaced else "", name)


async def _create(context: ScenarioContext, document: Document, resource: Resource) -> None:
    namespace = document.get("metadata", {}).get("namespace", "default") if resource.namespaced else ""
    made = await context.client.create(resource.name, document, namespace=namespace)
    await context.observer.wait_until_rv(int(made["metadata"]["resourceVersion"]), resource.name)


async def create(context: ScenarioContext, step: Step) -> None:
    """Create the object that the verb names: a pod, a Deployment and so on (`MAKERS`)."""
    document = workload.MAKERS[step.verb].make(step.args[0], step.options)
    resource = resource_named(f"{document['kind'].lower()}")
    assert resource is not None
    await _create(context, document, resource)


def _check_made(scenario: Scenario, step: Step) -> None:
    workload.MAKERS[step.verb].make(step.args[0], step.options)


def _verb_of(maker: workload.Maker) -> Verb:
    """Return the verb that creates what the maker makes."""
    declared = {each.name: getattr(maker, each.name) for each in fields(maker) if each.name != "make"}
    return Verb(**declared, perform=create, check=_check_made)


def _check_apply(scenario: Scenario, step: Step) -> None:
    for _ in _objects_to_apply(scenario, step):
        pass


def _objects_to_apply(scenario: Scenario, step: Step) -> list[tuple[Part, Resource]]:
    block = step.block or file_of(scenario, step.args[0])
    found = list(objects_of(block))
    if not found:
        raise ValueError(f"{step.text}: there is no object in it")
    return found


@verb(
    OBJECTS,
    Argument(FILE, "a YAML or JSON file beside the scenario"),
    block="Kubernetes objects",
    form="apply FILE|<<EOF",
    check=_check_apply,
)
async def apply(context: ScenarioContext, step: Step) -> None:
    """Create every object of a block or of a file beside the scenario, in order.

    Fields are checked against the served schema before anything starts; an error names line, object and field.
    """
    for part, resource in _objects_to_apply(context.scenario, step):
        try:
            await _create(context, part.document, resource)
        except ApiError as error:
            causes = error.details.get("causes") or ({"field": ""},)
            at = f"{part.place(causes[0].get('field') or '')}: {error.message}"
            raise type(error)(at, reason=error.reason, code=error.code, details=error.details) from None


_OBJECT = Argument("KIND/NAME", "an object; in a namespace KIND/NAMESPACE/NAME; a glob names the first that matches")
_NODE = Argument("NODE", "a node")


@verb(
    CHANGES,
    _OBJECT,
    options=(
        Option("grace", SECONDS, "seconds from SIGTERM to SIGKILL; 0: at once", otherwise="the object's own"),
        Option("propagation", choice("Background", "Foreground", "Orphan"), "what becomes of its dependents"),
    ),
)
async def delete(context: ScenarioContext, step: Step) -> None:
    """Delete an object; with a glob, the first one that matches now."""
    resource, key = await _object(context, step.args[0])
    grace, propagation = step.values["grace"], step.values["propagation"] or ""
    await context.client.delete(resource.name, key, grace_period_s=grace, propagation=propagation)


@verb(CHANGES, _OBJECT, options=(Option("replicas", INTEGER, "how many", is_required=True),))
async def scale(context: ScenarioContext, step: Step) -> None:
    """Set the number of replicas of an object."""
    resource, key = await _object(context, step.args[0])
    await context.client.patch(resource.name, key, {"spec": {"replicas": step.values["replicas"]}})


def _check_patch(scenario: Scenario, step: Step) -> None:
    if "$" not in step.body:
        _json(step.body)


@verb(CHANGES, _OBJECT, text=Argument("JSON", "a merge patch; `$name` is what was remembered"), check=_check_patch)
async def patch(context: ScenarioContext, step: Step) -> None:
    """Send a merge patch for an object."""
    resource, key = await _object(context, step.args[0])
    await context.client.patch(resource.name, key, _json(substitute(context, step.body)))


@verb(
    CHANGES,
    Argument("pod/NAME", "a pod"),
    options=workload.RESIZE_OPTIONS,
    check=lambda scenario, step: workload.check_resize(step.options),
)
async def resize(context: ScenarioContext, step: Step) -> None:
    """Request another size of a container, by the subresource `resize`."""
    resource, key = await _object(context, step.args[0])
    pod = await context.client.get(resource.name, key)
    body = workload.resize_patch(pod, step.options)
    await context.client.patch(resource.name, key, body, subresource="resize", patch_type="strategic")


@verb(CHANGES, _NODE)
async def cordon(context: ScenarioContext, step: Step) -> None:
    """Mark a node unschedulable."""
    await context.client.patch("nodes", Key("", step.args[0]), {"spec": {"unschedulable": True}})


@verb(CHANGES, _NODE)
async def uncordon(context: ScenarioContext, step: Step) -> None:
    """Mark a node schedulable again."""
    await context.client.patch("nodes", Key("", step.args[0]), {"spec": {"unschedulable": None}})


def _check_label(scenario: Scenario, step: Step) -> None:
    if not step.options:
        raise ValueError("label wants KEY=VALUE; KEY= removes the label")


@verb(CHANGES, _OBJECT, others=Argument("KEY=VALUE", "a label; `KEY=` removes it", count="some"), check=_check_label)
async def label(context: ScenarioContext, step: Step) -> None:
    """Add labels to an object, or remove some."""
    resource, key = await _object(context, step.args[0])
    labels = {name: value or None for name, value in step.options.items()}
    await context.client.patch(resource.name, key, {"metadata": {"labels": labels}})


_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TAINT = Argument("KEY[=VALUE]:EFFECT", "a taint; with `-` behind it: remove it", count="optional")


def _taint_of(step: Step) -> str:
    """Return the taint of a line; one with a value looks like an option. Raises: ValueError."""
    words = [*step.args[1:], *(f"{name}={value}" for name, value in step.options.items())]
    if len(words) != 1:
        raise ValueError("want: taint NODE KEY[=VALUE]:EFFECT")
    effect = words[0].removesuffix("-").rpartition(":")[2]
    if effect not in _EFFECTS:
        raise ValueError(f"{words[0]!r}: want KEY[=VALUE]:EFFECT, the effect one of {', '.join(_EFFECTS)}")
    return words[0]


def _check_taint(scenario: Scenario, step: Step) -> None:
    _taint_of(step)


@verb(
    CHANGES,
    _NODE,
    _TAINT,
    others=Argument("KEY=VALUE:EFFECT", "the same", count="any"),
    form="taint NODE KEY[=VALUE]:EFFECT[-]",
    check=_check_taint,
)
async def taint(context: ScenarioContext, step: Step) -> None:
    """Add a taint to a node, or remove it."""
    node, text = step.args[0], _taint_of(step)
    name, _, effect = text.removesuffix("-").rpartition(":")
    name, _, value = name.partition("=")
    document = await context.client.get("nodes", Key("", node))
    taints = [t for t in document["spec"].get("taints", ()) if (t["key"], t["effect"]) != (name, effect)]
    if not text.endswith("-"):
        taints.append({"key": name, "effect": effect, **({"value": value} if value else {})})
    await context.client.patch("nodes", Key("", node), {"spec": {"taints": taints}})


@verb(TIME, Argument("DURATION", "how long", type=DURATION))
async def wait(context: ScenarioContext, step: Step) -> None:
    """Wait for a while."""
    await asyncio.sleep(step.values["DURATION"])


@verb(
    fault_verbs.OF_NODES,
    _NODE,
    Argument("RESOURCE", "the plugin's extended resource"),
    Argument("ACT", ", ".join(PLUGIN_ACTS)),
    Argument("DEVICE", "the devices it is about", count="any"),
    check=lambda scenario, step: check_act(step.args[2], step.args[3:]),
)
async def device_plugin(context: ScenarioContext, step: Step) -> None:
    """Make an emulated device plugin act; if it was killed, wait until it is back."""
    node, resource, act, *devices = step.args
    await _once_back(context, lambda: context.mesh.command_plugin(node, resource, act, tuple(devices)))


async def _once_back(context: ScenarioContext, act: Callable[[], Awaitable[None]]) -> None:
    """Have a plugin or driver act, once it is there. Raises: Away when it does not come back."""
    until_s = context.observer.now_s + PLUGIN_BACK_S
    while True:
        try:
            return await act()
        except Away:
            if context.observer.now_s >= until_s:
                raise
        await asyncio.sleep(0.1)


def _driver_words(step: Step) -> tuple[str, ...]:
    """Return what an act is about; a taint with a value looks like an option."""
    return (*step.args[3:], *(f"{name}={value}" for name, value in step.options.items() if name != "down"))


@verb(
    fault_verbs.OF_NODES,
    _NODE,
    Argument("DRIVER", "the driver's name"),
    Argument("ACT", ", ".join(DRIVER_ACTS)),
    Argument("DEVICE", "the devices it is about; of `taint` also KEY[=VALUE]:EFFECT, as the last", count="any"),
    options=(Option("down", DURATION, "of `crash`: how long at least it is away", default="0s"),),
    others=Argument("KEY=VALUE:EFFECT", "a taint with a value", count="any"),
    form="dra-driver NODE DRIVER ACT [DEVICE …] [KEY[=VALUE]:EFFECT] [down=DURATION]",
    check=lambda scenario, step: check_driver_act(step.args[2], _driver_words(step)),
)
async def dra_driver(context: ScenarioContext, step: Step) -> None:
    """Make an emulated DRA driver act; if it was killed, wait until it is back."""
    node, driver, act = step.args[:3]
    if act == "crash":
        await context.mesh.kill(driver_name(node, driver), step.values["down"])
        return
    await _once_back(context, lambda: context.mesh.command_driver(node, driver, act, _driver_words(step)))


@verb(
    TIME,
    Argument("NAME", "lower-case letters and `_`"),
    _OBJECT,
    Argument("PATH", "a path into the object, as in `expect each`"),
)
async def remember(context: ScenarioContext, step: Step) -> None:
    """Remember the value at a path of an object; later lines may use it as `$NAME`.

    `$NAME` is allowed in `patch`, `as`, the component of a fault and the value of an expectation.
    """
    name, word, path = step.args
    resource, key = await _object(context, word)
    document = await context.client.get(resource.name, key)
    value = lookup(document, path)
    if value is None:
        raise ValueError(f"{word} has no {path}")
    context.remembered[name] = str(value)


AS_FORM = "as WHO VERB KIND/NAME[/SUBRESOURCE] [JSON] -> CODE [REASON]"
_AS = re.compile(
    r"(?P<who>\S+) (?P<verb>get|create|update|patch|delete|list) (?P<object>\S+)(?: (?P<body>\{.*\}))?"
    r" -> (?P<code>\d{3})(?: (?P<reason>\w+))?"
)


def _check_as(scenario: Scenario, step: Step) -> None:
    if _AS.fullmatch(re.sub(r"\$[a-z_]+", "0", step.body)) is None:
        raise ValueError(f"want: {AS_FORM}")


@verb("Expectations", text=Argument("CALL", "who, what, and the answer"), name="as", form=AS_FORM, check=_check_as)
async def as_identity(context: ScenarioContext, step: Step) -> None:
    """Make a call as another identity and expect that response.

    WHO is `admin`, `scheduler`, `node:NAME`, `controller:NAME` or a user. VERB is get, list, create, update,
    patch (a merge patch) or delete. CODE is the HTTP status code, REASON that of the Status.
    """
    match = _AS.fullmatch(substitute(context, step.body))
    if match is None:
        raise ValueError(f"want: {AS_FORM}")
    kind, *path = match["object"].split("/")
    resource = _resource(kind)
    name = path[0] if path else ""
    if "*" in name:
        name = (await _object(context, f"{kind}/{name}"))[1].name
    request = Request(
        verb=match["verb"],
        resource=resource.name,
        namespace=_namespace_of(match["body"]) if resource.namespaced else "",
        name=name,
        subresource=path[1] if len(path) > 1 else "",
        body=(match["body"] or "").encode(),
        patch_type="merge" if match["verb"] == "patch" else "",
    )
    response = await context.mesh.api(identity_named(match["who"])).call(request)
    reason = "" if response.is_ok else response.error().reason
    met = response.code == int(match["code"]) and match["reason"] in (None, reason)
    context.answers.append((step, met, f"{response.code} {reason}".strip()))


def _namespace_of(body: str | None) -> str:
    """Return where the body says the object is; a body that cannot be read is for the server to refuse."""
    try:
        return msgspec.json.decode(body or "{}")["metadata"]["namespace"]  # type: ignore[no-any-return]
    except (*UNREADABLE, KeyError, TypeError):
        return "default"


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except UNREADABLE as error:
        raise ValueError(f"{text!r} is no JSON: {error}") from None


@verb(
    "Expectations",
    options=(
        Option("quiet", DURATION, "for how long no pod changed", default="5s"),
        Option("limit", DURATION, "how long it waits for that", default="120s"),
        Option("workloads", choice("desired", "any"), "what they have to be then", default="desired"),
    ),
)
async def settle(context: ScenarioContext, step: Step) -> None:
    """Wait until no pod has changed for a while, and expect that every workload is in its desired state (I20,
    I28).

    With `workloads=any` it only waits.
    """
    quiet, limit = step.values["quiet"], step.values["limit"]
    last = begun = context.observer.now_s

    def on_change(resource: str) -> None:
        nonlocal last
        if resource == "pods":
            last = context.observer.now_s

    end = context.observer.on_change(on_change)
    try:
        while context.observer.now_s - last < quiet:
            if context.observer.now_s - begun > limit:
                raise ValueError(f"pods still change after {limit:g} s")
            await asyncio.sleep(quiet - (context.observer.now_s - last) + 0.001)
            if not await context.freshness.reach(followed := ("pods", *WORKLOADS)):
                context.freshness.note_late(followed, step.text)
    finally:
        end()
    documents = {resource: context.observer.documents(resource) for resource in WORKLOADS}
    unrest = [f"{what}: {detail}" for what, detail in unrest_of(documents)]
    is_met = not unrest or step.values["workloads"] == "any"
    context.answers.append((step, is_met, "; ".join(unrest) or "at rest, every workload as desired"))


@verb(CHANGES, text=Argument("JSON", "an operation of kube-scheduler-simulator's KEP-140: create, patch or delete"))
async def operation(context: ScenarioContext, step: Step) -> None:
    """Perform an operation in the format of kube-scheduler-simulator's KEP-140, and expect that it is accepted."""
    given = _json(step.body)
    what = next((each for each in ("create", "patch", "delete") if each in given), "")
    if not what:
        raise ValueError("want create, patch or delete")
    body = given[what]
    about = body["object"] if what == "create" else {**body["typeMeta"], "metadata": body["objectMeta"]}
    resource = resource_of_kind(str(about.get("apiVersion")), str(about.get("kind")))
    if resource is None:
        raise ValueError(f"no kind {about.get('apiVersion')} {about.get('kind')} is served")
    metadata = about.get("metadata") or {}
    key = Key((metadata.get("namespace") or "default") if resource.namespaced else "", metadata.get("name") or "")
    try:
        if what == "create":
            await _create(
                context,
                {**about, "metadata": {**metadata, **({"namespace": key.namespace} if key.namespace else {})}},
                resource,
            )
        elif what == "patch":
            await context.client.patch(resource.name, key, _json(body["patch"]), patch_type=patch_type_of(body))
        else:
            await context.client.delete(resource.name, key)
    except ApiError as error:
        context.answers.append((step, False, error.message))
        return
    context.answers.append((step, True, f"{what} {resource.kind} {key}"))


@verb(TIME, _OBJECT, options=(Option("limit", DURATION, "how long it may take", default="60s"),))
async def gone(context: ScenarioContext, step: Step) -> None:
    """Wait until an object is no longer stored."""
    resource, key = await _object(context, step.args[0])
    limit = context.observer.now_s + step.values["limit"]
    while context.observer.now_s < limit:
        try:
            await context.client.get(resource.name, key)
        except NotFound:
            return
        await asyncio.sleep(0.2)
    raise ValueError(f"{resource.singular} {key} is still there")


VERBS: Final[dict[str, Verb]] = {
    **{name: _verb_of(maker) for name, maker in workload.MAKERS.items()},
    **verbs_in(globals()),
    **play_verbs.VERBS,
    **fault_verbs.VERBS,
}


def check(scenario: Scenario, step: Step) -> None:
    """Raise ValueError for a mistake in an act that can be found before anything starts."""
    if step.verb != "expect" and (look := VERBS[step.verb].check) is not None:
        look(scenario, step)


def read_scenario(text: str, path: str) -> Scenario:
    """Parse a scenario, and check every line as far as possible before anything starts. Raises: ScriptError
    naming file and line.
    """
    scenario = parse_scenario(text, path, VERBS)
    for step in scenario.steps:
        try:
            check(scenario, step)
        except BlockError as error:
            raise ScriptError(str(error)) from None
        except ValueError as error:
            raise ScriptError(f"{path}:{step.line}: {error}") from None
    return scenario
