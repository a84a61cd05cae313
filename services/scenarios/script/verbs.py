"""What a scenario may say: one function a verb. A new verb is one more function in `VERBS`.

Each takes the context (the mesh, the administrator's client, what was remembered) and the step. A
mistake in the scenario is a ValueError; the runner adds file and line.
"""

import asyncio
import re
from fnmatch import fnmatchcase
from typing import Any

import msgspec
import yaml

import services.scenarios.script.fault_verbs as fault_verbs
import services.scenarios.script.workload as workload
from kubelet.deviceplugin.emulated.plugin import check_act
from kubelet.deviceplugin.emulated.serving import PluginAway
from kubelet.dra.emulated.driver import check_act as check_driver_act
from kubelet.dra.emulated.serving import DriverAway
from services.api.errors import UNREADABLE, NotFound
from services.api.meta import Document, Key, Resource
from services.api.resources import resource_of_kind
from services.api.wire import Request
from services.runtime.components import driver_name
from services.scenarios.invariants import unrest_of
from services.scenarios.mesh import identity_named
from services.scenarios.script.context import ScenarioContext, Verb, beside, named, one, substitute
from services.scenarios.script.expectation import lookup, resource_named
from services.scenarios.script.scenario import Step, parse_duration

WORKLOADS = ("replicasets.apps", "deployments.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch")
PLUGIN_BACK_S = 10.0
"""So long a scenario waits for a device plugin that is not there."""


def _resource(name: str) -> Resource:
    resource = resource_named(name)
    if resource is None:
        raise ValueError(f"no resource is called {name!r}")
    return resource


def _object(context: ScenarioContext, word: str) -> tuple[Resource, Key]:
    """Return what `pod/web-0`, `pod/ns/x` or `pod/web-*` (the first that matches now) names."""
    kind, _, rest = word.partition("/")
    resource = _resource(kind)
    namespace, _, name = rest.rpartition("/")
    if not rest:
        raise ValueError(f"{word!r}: want KIND/NAME")
    if "*" in name:
        for document in context.observer.documents(resource.name):
            if fnmatchcase(document["metadata"]["name"], name):
                meta = document["metadata"]
                return resource, Key(meta.get("namespace", ""), meta["name"])
        raise ValueError(f"nothing matches {word!r} now")
    return resource, Key((namespace or "default") if resource.namespaced else "", name)


async def _create(context: ScenarioContext, document: Document) -> None:
    resource = resource_of_kind(document.get("apiVersion", ""), document.get("kind", ""))
    if resource is None:
        raise ValueError(f"no kind {document.get('kind')!r} in {document.get('apiVersion')!r} is served")
    namespace = document.get("metadata", {}).get("namespace", "default") if resource.namespaced else ""
    made = await context.client.create(resource.name, document, namespace=namespace)
    await context.observer.wait_until_rv(int(made["metadata"]["resourceVersion"]), resource.name)


async def create(context: ScenarioContext, step: Step) -> None:
    """Create what the verb is called by: a pod, a Deployment and so on (`MAKERS`)."""
    await _create(context, workload.MAKERS[step.verb](one(step, "a name"), step.options))


async def apply(context: ScenarioContext, step: Step) -> None:
    """`apply FILE`: create every object of a YAML or JSON file beside the scenario."""
    path = beside(context, one(step, "a file"))
    try:
        documents = list(yaml.safe_load_all(path.read_text()))
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"{step.args[0]}: {error}") from None
    for document in documents:
        await _create(context, document)


async def delete(context: ScenarioContext, step: Step) -> None:
    """`delete KIND/NAME [grace=SECONDS] [propagation=…]`: delete an object; a glob deletes the first match."""
    resource, key = _object(context, one(step, "KIND/NAME"))
    grace = step.options.get("grace")
    await context.client.delete(
        resource.name,
        key,
        grace_period_s=int(grace) if grace is not None else None,
        propagation=step.options.get("propagation", ""),
    )


async def scale(context: ScenarioContext, step: Step) -> None:
    """`scale KIND/NAME replicas=N`."""
    resource, key = _object(context, one(step, "KIND/NAME"))
    await context.client.patch(resource.name, key, {"spec": {"replicas": int(step.options["replicas"])}})


async def patch(context: ScenarioContext, step: Step) -> None:
    """`patch KIND/NAME JSON`: a merge patch."""
    word, _, text = step.rest.partition(" ")
    resource, key = _object(context, word)
    await context.client.patch(resource.name, key, _json(substitute(context, text)))


async def resize(context: ScenarioContext, step: Step) -> None:
    """`resize pod/NAME [cpu=…] [memory=…] [cpu-limit=…] [memory-limit=…] [container=…]`: ask for another size."""
    resource, key = _object(context, one(step, "pod/NAME"))
    pod = await context.client.get(resource.name, key)
    body = workload.resized(pod, step.options)
    await context.client.patch(resource.name, key, body, subresource="resize", patch_type="strategic")


async def cordon(context: ScenarioContext, step: Step) -> None:
    """`cordon NODE`: nothing new is scheduled there."""
    await context.client.patch("nodes", Key("", one(step, "a node")), {"spec": {"unschedulable": True}})


async def uncordon(context: ScenarioContext, step: Step) -> None:
    """`uncordon NODE`."""
    await context.client.patch("nodes", Key("", one(step, "a node")), {"spec": {"unschedulable": None}})


async def label(context: ScenarioContext, step: Step) -> None:
    """`label KIND/NAME key=value …`; an empty value removes the label."""
    resource, key = _object(context, one(step, "KIND/NAME"))
    labels = {name: value or None for name, value in step.options.items()}
    await context.client.patch(resource.name, key, {"metadata": {"labels": labels}})


async def taint(context: ScenarioContext, step: Step) -> None:
    """`taint NODE KEY[=VALUE]:EFFECT`: add a taint; a trailing `-` removes it."""
    if len(step.args) + len(step.options) != 2:
        raise ValueError("want: taint NODE KEY[=VALUE]:EFFECT")
    node = step.args[0]
    text = step.args[1] if len(step.args) > 1 else "=".join(next(iter(step.options.items())))
    name, _, effect = text.rstrip("-").rpartition(":")
    name, _, value = name.partition("=")
    document = await context.client.get("nodes", Key("", node))
    taints = [t for t in document["spec"].get("taints", ()) if (t["key"], t["effect"]) != (name, effect)]
    if not text.endswith("-"):
        taints.append({"key": name, "effect": effect, **({"value": value} if value else {})})
    await context.client.patch("nodes", Key("", node), {"spec": {"taints": taints}})


async def wait(context: ScenarioContext, step: Step) -> None:
    """`wait 5s`: let time pass."""
    await asyncio.sleep(parse_duration(one(step, "a duration")))


async def device_plugin(context: ScenarioContext, step: Step) -> None:
    """`device-plugin NODE RESOURCE ACT [DEVICE …]`: stop, start, unhealthy, healthy, remove, add, refuse, accept. A
    plugin that was killed is waited for."""
    node, resource, act, *devices = step.args
    until_s = context.observer.now_s + PLUGIN_BACK_S
    while True:
        try:
            return await context.mesh.command_plugin(node, resource, act, tuple(devices))
        except PluginAway:
            if context.observer.now_s >= until_s:
                raise
        await asyncio.sleep(0.1)


def _driver_words(step: Step) -> tuple[str, ...]:
    """Return what an act is about; a taint with a value looks like an option."""
    return (*step.args[3:], *(f"{name}={value}" for name, value in step.options.items() if name != "down"))


async def dra_driver(context: ScenarioContext, step: Step) -> None:
    """`dra-driver NODE DRIVER ACT [DEVICE …]`: stop, start, restart, hang, resume, refuse, accept, generation, crash
    [down=5s]; unhealthy, healthy, remove, add, untaint DEVICE …; taint DEVICE … KEY[=VALUE]:EFFECT."""
    node, driver, act = step.args[:3]
    if act == "crash":
        down_s = parse_duration(step.options.get("down", "0s"))
        return await context.mesh.kill(driver_name(node, driver), down_s)
    until_s = context.observer.now_s + PLUGIN_BACK_S
    while True:
        try:
            return await context.mesh.command_driver(node, driver, act, _driver_words(step))
        except DriverAway:
            if context.observer.now_s >= until_s:
                raise
        await asyncio.sleep(0.1)


async def remember(context: ScenarioContext, step: Step) -> None:
    """`remember NAME KIND/NAME PATH`: later lines may say `$NAME`."""
    if len(step.args) != 3:
        raise ValueError("want: remember NAME KIND/NAME PATH")
    resource, key = _object(context, step.args[1])
    document = await context.client.get(resource.name, key)
    value = lookup(document, step.args[2])
    if value is None:
        raise ValueError(f"{step.args[1]} has no {step.args[2]}")
    context.remembered[step.args[0]] = str(value)


AS_FORM = "want: as WHO VERB KIND/NAME[/SUBRESOURCE] [JSON] -> CODE [REASON]"
_AS = re.compile(
    r"(?P<who>\S+) (?P<verb>get|create|update|patch|delete|list) (?P<object>\S+)(?: (?P<body>\{.*\}))?"
    r" -> (?P<code>\d{3})(?: (?P<reason>\w+))?"
)


async def as_identity(context: ScenarioContext, step: Step) -> None:
    """`as WHO VERB KIND[/NAME[/SUBRESOURCE]] [JSON] -> CODE [REASON]`: make a call and expect that answer."""
    match = _AS.fullmatch(substitute(context, step.rest))
    if match is None:
        raise ValueError(AS_FORM)
    kind, *path = match["object"].split("/")
    resource = _resource(kind)
    name = path[0] if path else ""
    if "*" in name:
        name = _object(context, f"{kind}/{name}")[1].name
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


async def settle(context: ScenarioContext, step: Step) -> None:
    """`settle [quiet=5s] [limit=120s]`: wait until no pod changed for that long; then all is as desired (I20, I28)."""
    quiet = parse_duration(step.options.get("quiet", "5s"))
    limit = parse_duration(step.options.get("limit", "120s"))
    last = begun = context.observer.now_s

    def on_change(resource: str) -> None:
        nonlocal last
        if resource == "pods":
            last = context.observer.now_s

    context.observer.on_change(on_change)
    while context.observer.now_s - last < quiet:
        if context.observer.now_s - begun > limit:
            raise ValueError(f"pods still change after {limit:g} s")
        await asyncio.sleep(quiet - (context.observer.now_s - last) + 0.001)
    documents = {resource: context.observer.documents(resource) for resource in WORKLOADS}
    unrest = [f"{what}: {detail}" for what, detail in unrest_of(documents)]
    context.answers.append((step, not unrest, "; ".join(unrest) or "at rest, every workload as desired"))


async def gone(context: ScenarioContext, step: Step) -> None:
    """`gone KIND/NAME [limit=60s]`: wait until the object is no longer stored."""
    resource, key = _object(context, one(step, "KIND/NAME"))
    limit = context.observer.now_s + parse_duration(step.options.get("limit", "60s"))
    while context.observer.now_s < limit:
        try:
            await context.client.get(resource.name, key)
        except NotFound:
            return
        await asyncio.sleep(0.2)
    raise ValueError(f"{resource.singular} {key} is still there")


VERBS: dict[str, Verb] = {
    **dict.fromkeys(workload.MAKERS, create),
    **named(apply, delete, scale, patch, resize, cordon, uncordon, label, taint, wait),
    **fault_verbs.VERBS,
    **named(device_plugin, dra_driver, remember, settle, gone),
    "as": as_identity,
}


def check(step: Step) -> None:
    """Raise ValueError for a mistake that can be seen before anything starts."""
    if step.verb in workload.MAKERS:
        workload.MAKERS[step.verb](one(step, "a name"), step.options)
    elif step.verb == "as" and _AS.fullmatch(re.sub(r"\$[a-z_]+", "0", step.rest)) is None:
        raise ValueError(AS_FORM)
    elif step.verb == "resize":
        workload.check_resize(step.options)
    elif step.verb == "device-plugin":
        if len(step.args) < 3:
            raise ValueError("want: device-plugin NODE RESOURCE ACT [DEVICE …]")
        check_act(step.args[2], step.args[3:])
    elif step.verb == "dra-driver":
        if len(step.args) < 3:
            raise ValueError("want: dra-driver NODE DRIVER ACT [DEVICE …]")
        check_driver_act(step.args[2], _driver_words(step))
    elif step.verb == "wait" and len(step.args) != 1:
        raise ValueError("wait wants a duration")
    fault_verbs.check(step)
