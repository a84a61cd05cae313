"""What each controller may do is what its code does: the rights in `role.yaml` beside the actions in the folder.

Read from the source: each `Create`, `Patch`, `Update`, `Delete`, `Query` and call of `services.reconcile.writes` names its resource by a literal or a
constant; what is known at run time only, and what is granted all the same, stands in two tables below.
"""

import ast
import importlib
from pathlib import Path

import pytest

import claim_controller
import services.controllers
from claim_controller.wiring import CONTROLLERS as CONTROLLERS_OF_CLAIMS
from services.api.kinds.resourceclaim import CLAIMS
from services.api.meta import AnyObject
from services.api.resources import resource_of_view
from services.api.switches import Switches
from services.controllers.wiring import registered_controllers
from services.runtime.roles import CLAIM_FOLDER, FILE, OF_EVERY_CONTROLLER, controller_roles

FOLDER = Path(services.controllers.__file__).parent
ROOT = FOLDER.parents[1]
ROLES = (*controller_roles(), *controller_roles(CLAIM_FOLDER))
REGISTERED = (*registered_controllers().values(), *CONTROLLERS_OF_CLAIMS)
PLACES = {
    path.parent.name: path.parent
    for top in (FOLDER, Path(claim_controller.__file__).parent)
    for path in sorted(top.glob("*/controller.py"))
}
"""The folder of each controller, of both processes."""
VERBS = {"Create": "create", "Patch": "patch", "Update": "update", "Delete": "delete"}
WRITES = ("writes.patch", "writes.status", "writes.conditions")
AT_RUN_TIME = {
    "garbage_collector": {"delete *-secrets", "patch *-secrets", "read *-secrets"},
    "horizontal_pod_autoscaler": {
        f"{verb} {kind}.apps{sub}"
        for kind in ("deployments", "replicasets", "statefulsets")
        for verb, sub in (("read", ""), ("patch", "/scale"))
    },
    "namespace": {"delete *", "read *"},
    "replicaset": {"patch replicasets.apps/status"},
    "replicationcontroller": {"patch replicationcontrollers/status"},
    "resourcequota": {"read *"},
    "volume_protection": {"patch persistentvolumes", "patch persistentvolumeclaims"},
}
"""Whatever kinds are served, or either of two."""
GRANTED_ALL_THE_SAME = {
    "csrsigning": {"sign signers.certificates.k8s.io"},  # asked by admission, for the certificate in the status
    "descheduler": {"read nodes"},
    "device_taint_eviction": {"read devicetaintrules.resource.k8s.io"},  # with DRADeviceTaintRules
    "disruption": {"get */scale"},  # upstream counts through the scale subresource
    "namespace": {"deletecollection *"},
    "node_lifecycle": {"delete pods"},  # guarantees 8.3
    "persistentvolume_binder": {"read csidrivers.storage.k8s.io", "read csistoragecapacities.storage.k8s.io"},
    "pod_unbind": {"read nodes"},
    "resourceclaim": {
        "read workloads.scheduling.k8s.io",  # guarantees 8.3
        "patch resourceclaims.resource.k8s.io/binding",  # dra-core 9: asked of whoever changes an allocation
        *(f"read {kind}" for kind in ("daemonsets.apps", "deployments.apps", "jobs.batch")),  # kep-5194 7
        *(f"read {kind}" for kind in ("podgroups.scheduling.k8s.io", "replicasets.apps", "statefulsets.apps")),
    },
}
BORROWED = {"unbind_storm": "node_lifecycle"}
"""A controller without a role of its own acts as another one."""


def granted(folder):
    """Return `verb resource` of each right; get, list and watch together are one `read`."""
    text = (PLACES[folder] / FILE).read_text()
    own = next(role for role in ROLES if f"user: {role.user}\n" in text)
    found = set()
    for rule in own.rules:
        if rule in OF_EVERY_CONTROLLER:
            continue
        verbs = {"read"} if {"get", "list", "watch"} <= set(rule.verbs) else set(rule.verbs) - {"update"}
        if "update" in rule.verbs and "patch" not in rule.verbs:
            verbs.add("update")
        found |= {f"{verb} {resource}" for verb in verbs for resource in rule.resources}
    return found


def done(folder):
    """Return the same of what the folder's code does."""
    paths = [*sorted(PLACES[folder].glob("*.py"))]
    if any("shared_revisions" in path.read_text() for path in paths):
        paths.append(FOLDER / "shared_revisions.py")
    if any("shared_replicas" in path.read_text() for path in paths):
        paths.append(FOLDER / "shared_replicas.py")
    found = set().union(*map(_actions, paths))
    record = next(each for each in REGISTERED if each.build.__module__.split(".")[-2] == folder)
    controller = record.build(Switches())
    if "releasing(" in (PLACES[folder] / "controller.py").read_text():
        owner = resource_of_view(controller.reconciles).name
        found |= {f"patch {owner}", f"read {CLAIMS}", f"patch {CLAIMS}/status", f"patch {CLAIMS}/binding"}
    views = {*controller.owns, *controller.reads, *(watch.view for watch in controller.watches), controller.reconciles}
    return found | {f"read {resource_of_view(view).name}" for view in views - {None, AnyObject}}


def _actions(path):
    names = vars(importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts)))

    def value(node):
        return eval(ast.unparse(node), names) if node is not None else ""

    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        function = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if function == "deletions":  # of an owner's pods
            yield "delete pods"
        try:
            first = value(node.args[0])
        except (NameError, AttributeError, SyntaxError):
            continue  # known at run time only
        if function == "Query" and first is not AnyObject:
            yield f"read {resource_of_view(first).name}"
        elif function in ("changes_of", "finalizers"):
            yield f"patch {first}"
        elif ast.unparse(node.func) in WRITES:
            at = node.args[3] if len(node.args) > 3 else None
            subresource = value(at) if function == "patch" else "status"
            yield f"patch {first}/{subresource}" if subresource else f"patch {first}"
        elif function in VERBS:
            named = {keyword.arg: keyword.value for keyword in node.keywords}
            at = node.args[3] if function == "Patch" and len(node.args) > 3 else named.get("subresource")
            subresource = value(at)
            verb = "unbind" if subresource == "unbind" else VERBS[function]
            yield f"{verb} {first}/{subresource}" if subresource else f"{verb} {first}"


@pytest.mark.parametrize("folder", sorted(set(PLACES) - set(BORROWED)))
def test_a_controller_may_do_what_its_code_does_and_nothing_else(folder):
    known = AT_RUN_TIME.get(folder, set()) | GRANTED_ALL_THE_SAME.get(folder, set())
    wide = {right.split()[0] for right in known if right.endswith((" *", " *-secrets"))}

    assert {right for right in done(folder) | known if right.split()[0] not in wide or right in known} == granted(
        folder
    )


@pytest.mark.parametrize(("folder", "lender"), BORROWED.items())
def test_a_controller_that_acts_as_another_stays_within_its_rights(folder, lender):
    assert done(folder) <= granted(lender)


def test_every_controller_acts_as_a_user_that_has_a_role():
    assert {each.build(Switches()).user for each in REGISTERED} == {role.user for role in ROLES}


def test_a_registration_has_the_name_of_what_it_builds():
    assert [each.name for each in REGISTERED if each.build(Switches()).name != each.name] == []
