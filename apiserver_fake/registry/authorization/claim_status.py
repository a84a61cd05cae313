"""Authorization of the parts of a claim's status, beyond the permission to write the status at all.

A writer needs `update` or `patch` on the subresource `resourceclaims/binding` to change the allocation and the
reservations. To change the status of devices it needs, on `resourceclaims/driver` and for their drivers, the
permission for any node (`arbitrary-node:update`) or for claims allocated to the writer's own node
(`associated-node:update`). Both subresources are not served: they only stand for permissions. A driver's own
node is the one that its token is bound to. A node, as which a driver may act too, is associated with itself
alone. Source: dra-core 9; kep-5194 7; upstream `pkg/registry/resource/utils.go` (v1.36), which answers Invalid,
not Forbidden.
"""

from apiserver_fake.registry.authorization.authorizer import rules_of
from apiserver_fake.registry.authorization.node import node_of
from apiserver_fake.registry.policy import Attributes
from apiserver_fake.registry.strategy import WriteContext
from apiserver_fake.registry.validation.devices.device_status import key_of
from apiserver_fake.registry.validation.formats import Causes, forbidden
from services.api.identity import Identity, system_account
from services.api.meta import Document

BINDING = "resourceclaims.resource.k8s.io/binding"
DRIVER = "resourceclaims.resource.k8s.io/driver"
BOUND = ("allocation", "reservedFor")
ASSOCIATED, ARBITRARY = "associated-node:", "arbitrary-node:"


def check_writer(old: Document, new: Document, ctx: WriteContext) -> Causes:
    """Yield the changed parts of the status that this writer may not change; nothing with the gate off."""
    if not ctx.switches.dra_granular_status:
        return
    before, after = old.get("status") or {}, new.get("status") or {}
    verb, who = ctx.request.verb, ctx.identity
    is_bound_anew = any((before.get(name) or None) != (after.get(name) or None) for name in BOUND)
    if is_bound_anew and (who.node or not _may(ctx, verb, BINDING)):
        text = 'changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb='
        yield forbidden("status", f'{text}"{verb}" permission: {_refusal(who, verb, "binding")}')
    node = node_of(after.get("allocation") or {})
    at = who.node or who.on_node
    verbs = [ASSOCIATED + verb, ARBITRARY + verb] if at and at == node else [ARBITRARY + verb]
    for driver in sorted(_changed_drivers(before, after)):
        if who.node == node != "" or any(_may(ctx, each, DRIVER, driver) for each in verbs):
            continue
        where = f'in the namespace "{ctx.request.namespace}"'
        text = f'changing status.devices requires resource="resourceclaims/driver", verb="[{" ".join(verbs)}]"'
        yield forbidden("status.devices", f"{text} permission: {_refusal(who, verbs[0], 'driver', driver, where)}")


def _may(ctx: WriteContext, verb: str, resource: str, name: str = "") -> bool:
    who = ctx.identity
    if ctx.policy is not None:
        # What is done to one driver's devices is asked for in the claim's namespace, binding at the cluster scope.
        plural, _, group = resource.partition(".")
        group, _, part = group.partition("/")
        asked = Attributes(verb, group, plural, part, name, ctx.request.namespace if name else "")
        if ctx.policy.decide(who, asked).allowed:
            return True
    return any(
        verb in rule.verbs
        and resource in rule.resources
        and (not rule.resource_names or name in rule.resource_names)
        and (rule.where != "driver" or who.user == system_account(name).user)
        for rule in rules_of(who.user, who.groups)
    )


def _refusal(who: Identity, verb: str, part: str, name: str = "", where: str = "at the cluster scope") -> str:
    what = f'resourceclaims.resource.k8s.io "{name}"' if name else "resourceclaims.resource.k8s.io"
    return (
        f'{what} is forbidden: User "{who.user}" cannot {verb} resource "resourceclaims/{part}" '
        f'in API group "resource.k8s.io" {where}'
    )


def _changed_drivers(before: Document, after: Document) -> set[str]:
    """Return the drivers of whose devices something else is said. What goes with its device, the server takes away."""
    was, now = ({key_of(each): each for each in status.get("devices") or ()} for status in (before, after))
    results = ((after.get("allocation") or {}).get("devices") or {}).get("results") or ()
    allocated = {key_of(each) for each in results}
    return {key[0] for key in {*was, *now} if was.get(key) != now.get(key) and (key in now or key in allocated)}
