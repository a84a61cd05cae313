"""I24: every commit is permitted to its writer, as decided by an independent evaluator."""

from lab.scenarios.invariants import policy
from lab.scenarios.invariants.check import Check, Context, Report
from lab.scenarios.invariants.view import Commit, Recent, Stored
from services.api.identity import ADMIN, MASTERS_GROUP, NODE_HOST_PREFIX, NODE_HOSTS_GROUP, NODE_PREFIX, NODES_GROUP
from services.telemetry.eventlog import Line

KEPT = 20_000
_PRECONDITIONS = {
    (has_uid, has_rv): frozenset(word for word, has in (("uid", has_uid), ("rv", has_rv)) if has)
    for has_uid in (False, True)
    for has_rv in (False, True)
}
TOKENS_PATH = "nodetokens//"


class CommitsAreAllowed(Check):
    """I24: the independent evaluator allows each commit for its identity and the object as it was before.

    Commit lines lack some facts, which are assumed in favour of the writer. A user owns the namespace it
    writes to. A node that writes a claim's status has a pod with that claim. A driver's token is bound to the
    node of the slice the driver writes. A host's nodes are those that it was given tokens for.
    """

    id = "I24"
    events = ("store.commit", "api.request", "api.response")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._asked: Recent[tuple[str, str], tuple[str, frozenset[str]]] = Recent(KEPT)
        self._hosted: set[tuple[str, str]] = set()
        self._group = ("", 0)
        self._settings = frozenset(
            (name, value)
            for name, value in policy.settings_that_matter()
            if self.switches.flag(name) == (value == "true")
        )
        self._unbind_callers = policy.unbind_callers(self.switches)

    def take(self, line: Line, report: Report) -> None:
        """Note requests and their preconditions, and the nodes of hosts."""
        if line.ev == "api.request" and line.req_id:
            named = _PRECONDITIONS[bool(line.data.get("uid")), bool(line.data.get("resourceVersion"))]
            self._asked[(line.identity, line.req_id)] = (str(line.data.get("path", "")), named)
        if line.ev == "api.response" and line.identity.startswith(NODE_HOST_PREFIX) and line.data.get("code") == 201:
            path = str(line.data.get("path", ""))
            if path.startswith(TOKENS_PATH):
                self._hosted.add((line.identity, path.removeprefix(TOKENS_PATH)))

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Judge one change of a group, and the content of each."""
        if commit.is_replayed or not commit.verb:
            return
        group = (line.comp + line.inc, commit.group_end)
        if group != self._group:
            self._group = group
            call = self._call_of(commit)
            if not policy.is_allowed(call, self._settings):
                what = call.resource + (f"/{call.subresource}" if call.subresource else "")
                where = f" of a pod bound to {call.bound_to or 'no node'}" if call.resource == "pods" else ""
                report(line, f"{commit.identity} may not {call.verb} {what} {call.namespace}/{call.name}{where}")
        for detail in self._judge_content(commit):
            report(line, detail)

    def _call_of(self, commit: Commit) -> policy.Call:
        path, named = self._asked.get((commit.identity, commit.req_id), ("", frozenset()))
        resource, before = self.view.resources.get(commit.kind, ""), commit.before
        namespace, name = commit.content.namespace, commit.content.name
        parts = path.split("/")
        # A group may begin with an object beside the one that was meant, as an eviction's budget is.
        if len(parts) >= 3 and parts[2] and (parts[0], parts[1], parts[2]) != (resource, namespace, name):
            resource, namespace, name = parts[:3]
            before = self.view.get(self.view.kinds.get(resource, ""), namespace, name)
        if not commit.req_id:
            # Calls without an id come from people and from the server itself; their line says no preconditions.
            named = _PRECONDITIONS[True, True]
        user = commit.identity
        return policy.Call(
            user=user,
            groups=_groups_of(user),
            verb=commit.verb,
            resource=resource,
            subresource=commit.subresource,
            namespace=namespace,
            name=name,
            bound_to=before.node if before is not None else "",
            owned=(name if resource == "namespaces" else namespace,),
            referenced=True,
            preconditions=named,
            hosted=(user, name if resource == "nodes" else before.node if before is not None else "") in self._hosted,
            on_node=_node_of(before, commit) if policy.is_driver(user) else "",
        )

    def _judge_content(self, commit: Commit) -> list[str]:
        """Field masks, as far as commit lines carry the fields (X-NR2, X-NR7, X-NR10, 8.3)."""
        after, user, by = commit.after, commit.identity, commit.subresource
        if after is None:
            return []
        wrong = []
        before = commit.before if commit.before is not None and commit.before.uid == after.uid else None
        if before is not None and commit.kind == "Pod":
            nodes, callers = (before.node, after.node), self._unbind_callers
            if not policy.may_change_node_name(user, by, *nodes, unbind_callers=callers):
                wrong.append(f"{user} may not move a pod from {nodes[0] or 'no node'} to {nodes[1] or 'no node'}")
        if user.startswith(NODE_PREFIX):
            wrong += _judge_node(user.removeprefix(NODE_PREFIX), commit, before, after)
        if before is not None and by == "status":
            masked = [f for f in ("owners", "finalizers", "generation", "unbinds") if _differ(before, after, f)]
            wrong += [f"{user} changed {field} of {commit.kind} {after.name} through status" for field in masked]
        return wrong


def _node_of(before: Stored | None, commit: Commit) -> str:
    stored = before or commit.after
    return stored.node if stored is not None else ""


def _judge_node(node: str, commit: Commit, before: Stored | None, after: Stored) -> list[str]:
    if commit.kind == "Node":
        masked = [f for f in ("owners", "finalizers") if (getattr(before, f) if before else ()) != getattr(after, f)]
        return [f"node {node} set {field} of itself to {getattr(after, field)}" for field in masked]
    if commit.kind == "Pod" and before is None and commit.type == "ADDED" and after.node != node:
        return [f"node {node} created a pod on {after.node or 'no node'}"]
    if commit.kind != "Pod" or before is None or commit.subresource != "status":
        return []
    wrong = []
    if _differ(before, after, "nominated"):
        wrong.append(f"node {node} changed the nomination from {before.nominated!r} to {after.nominated!r}")
    if after.observed < after.generation:
        bound = f"the pod is bound at {after.generation}"
        wrong.append(f"node {node} wrote a status of generation {after.observed}; {bound}")
    return wrong


def _differ(before: Stored, after: Stored, field: str) -> bool:
    return bool(getattr(before, field) != getattr(after, field))


def _groups_of(user: str) -> tuple[str, ...]:
    if user == ADMIN.user:
        return (MASTERS_GROUP,)
    if user.startswith(NODE_HOST_PREFIX):
        return (NODE_HOSTS_GROUP,)
    if policy.is_driver(user):
        return (policy.DRIVERS,)
    return (NODES_GROUP,) if user.startswith(NODE_PREFIX) else ()
