"""Admission policies through the real server: bound, evaluated inside the commit, in upstream's words. KEP-3488, KEP-3962."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.wiring import build
from lab.scenarios.simulation import simloop
from services.api.identity import ADMIN, Identity, controller_identity
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Request
from services.runtime.real import MemoryDisk, NoTransport
from services.telemetry.eventlog import NullEventLog
from services.telemetry.traces import Tracer

GROUP = "admissionregistration.k8s.io"
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"]}


class LoopClock:
    """Virtual time."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return 1_800_000_000 + self.now()


class Caller:
    """Calls the server."""

    def __init__(self, server: Any) -> None:
        self.server = server

    async def answer(self, verb: str, resource: str, name: str = "", body: Any = None, **more: Any) -> Any:
        identity: Identity = more.pop("identity", ADMIN)
        is_cluster = resource in ("nodes", "namespaces") or GROUP in resource
        namespace = more.pop("namespace", "" if is_cluster else "default")
        encoded = b"" if body is None else msgspec.json.encode(body)
        request = Request(verb=verb, resource=resource, name=name, namespace=namespace, body=encoded, **more)
        return await self.server.api_for(identity).call(request)

    async def __call__(self, *args: Any, **more: Any) -> Any:
        return msgspec.json.decode((await self.answer(*args, **more)).unwrap().body)

    async def refusal(self, *args: Any, **more: Any) -> Any:
        answer = await self.answer(*args, **more)
        assert not answer.is_ok, answer.body
        return msgspec.json.decode(answer.body)

    async def policy(self, name: str = "p", *validations: Any, binding: Any = None, **spec: Any) -> None:
        """Store a ValidatingAdmissionPolicy for pods, and a binding of it that denies."""
        rules = {"matchConstraints": {"resourceRules": [PODS]}, "validations": list(validations)}
        await self(
            "create",
            f"validatingadmissionpolicies.{GROUP}",
            body={"metadata": {"name": name}, "spec": {**rules, **spec}},
        )
        bound = {"policyName": name, "validationActions": ["Deny"], **(binding or {})}
        resource = f"validatingadmissionpolicybindings.{GROUP}"
        await self("create", resource, body={"metadata": {"name": f"{name}-b"}, "spec": bound})

    async def mutation(self, name: str, *mutations: Any, **spec: Any) -> None:
        """Store a MutatingAdmissionPolicy for pods, and a binding of it."""
        rules = {"matchConstraints": {"resourceRules": [PODS]}, "mutations": list(mutations)}
        body = {"metadata": {"name": name}, "spec": {**rules, **spec}}
        await self("create", f"mutatingadmissionpolicies.{GROUP}", body=body)
        resource = f"mutatingadmissionpolicybindings.{GROUP}"
        await self("create", resource, body={"metadata": {"name": f"{name}-b"}, "spec": {"policyName": name}})


@asynccontextmanager
async def a_server() -> Any:
    clock, rng = LoopClock(), random.Random(3)
    seams = Seams(
        component="apiserver", clock=clock, random=rng, disk=MemoryDisk(), transport=NoTransport(),
        events=NullEventLog(), tracer=Tracer("apiserver", clock=clock, random=rng, sinks=()), switches=Switches(),
    )  # fmt: skip
    component = build(ApiServerConfig(engine="memory", grpc_port=None, rest_port=None), seams)
    task = asyncio.create_task(component.run())
    await component.server.wait_until_ready()
    try:
        yield Caller(component.server)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def scene(test: Any) -> Any:
    """Run an async test with a server of its own in virtual time."""

    def run() -> None:
        async def scenario() -> None:
            async with a_server() as call:
                await test(call)

        simloop.run(scenario())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def pod(name: str = "p", **labels: str) -> Any:
    containers = [{"name": "c", "image": "i:1"}]
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers}}


@scene
async def test_a_failed_validation_denies_the_request_with_upstreams_text_reason_and_cause(call):
    await call.policy("p", {"expression": "'app' in object.metadata.labels", "message": "pods need an app"})
    refused = await call.refusal("create", "pods", body=pod())
    text = "ValidatingAdmissionPolicy 'p' with binding 'p-b' denied request: pods need an app"
    assert refused["message"] == f'pods "p" is forbidden: {text}'
    assert (refused["reason"], refused["code"]) == ("Invalid", 422)
    assert refused["details"] == {"name": "p", "kind": "pods", "causes": [{"message": text}]}
    await call("create", "pods", body=pod(app="web"))


@scene
async def test_a_reason_has_its_code_and_a_message_expression_wins_over_the_message(call):
    await call.policy(
        "p",
        {
            "expression": "false",
            "message": "plain",
            "messageExpression": "'no ' + object.metadata.name",
            "reason": "Forbidden",
        },
    )
    refused = await call.refusal("create", "pods", body=pod())
    assert (refused["reason"], refused["code"]) == ("Forbidden", 403)
    assert refused["message"].endswith("denied request: no p")


@scene
async def test_without_a_binding_a_policy_does_nothing(call):
    body = {
        "metadata": {"name": "p"},
        "spec": {"matchConstraints": {"resourceRules": [PODS]}, "validations": [{"expression": "false"}]},
    }
    await call("create", f"validatingadmissionpolicies.{GROUP}", body=body)
    answer = await call.answer("create", "pods", body=pod())
    assert (answer.code, answer.warnings) == (201, ())


@scene
async def test_warn_lets_the_request_pass_with_a_warning(call):
    await call.policy("p", {"expression": "false"}, binding={"validationActions": ["Warn", "Audit"]})
    answer = await call.answer("create", "pods", body=pod())
    assert answer.code == 201
    text = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-b': failed expression: false"
    assert answer.warnings == (text,)


@scene
async def test_a_denied_request_still_carries_the_warnings_of_other_policies(call):
    await call.policy("a", {"expression": "false"}, binding={"validationActions": ["Warn"]})
    await call.policy("b", {"expression": "false"})
    answer = await call.answer("create", "pods", body=pod())
    assert answer.code == 422
    assert len(answer.warnings) == 1


@scene
async def test_an_expression_that_fails_does_what_the_failure_policy_says(call):
    await call.policy("p", {"expression": "object.spec.missing == 1"})
    refused = await call.refusal("create", "pods", body=pod())
    assert refused["message"].endswith(
        "denied request: expression 'object.spec.missing == 1' resulted in error: no such key: missing"
    )
    resource = f"validatingadmissionpolicies.{GROUP}"
    await call("patch", resource, "p", {"spec": {"failurePolicy": "Ignore"}}, patch_type="merge")
    await call("create", "pods", body=pod())


@scene
async def test_variables_are_evaluated_when_they_are_used_and_can_use_each_other(call):
    await call.policy(
        "p",
        {"expression": "variables.count <= 1 || variables.broken > 0"},
        variables=[
            {"name": "containers", "expression": "object.spec.containers"},
            {"name": "count", "expression": "size(variables.containers)"},
            {"name": "broken", "expression": "object.nothing.here"},
        ],
    )
    await call("create", "pods", body=pod())
    two = pod("two")
    two["spec"]["containers"].append({"name": "d", "image": "i:1"})
    refused = await call.refusal("create", "pods", body=two)
    assert 'composited variable "broken" fails to evaluate: no such key: nothing' in refused["message"]


@scene
async def test_parameters_are_of_the_requests_namespace_and_each_is_evaluated(call):
    await call.policy(
        "p",
        {
            "expression": "object.metadata.name != params.data.forbidden",
            "messageExpression": "string(params.metadata.name)",
        },
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        binding={"paramRef": {"selector": {"matchLabels": {"for": "p"}}, "parameterNotFoundAction": "Deny"}},
    )
    refused = await call.refusal("create", "pods", body=pod("a"))
    assert refused["message"].endswith(
        "denied request: failed to configure binding: no params found for policy binding with `Deny` "
        "parameterNotFoundAction"
    )
    for name in ("a", "b"):
        body = {"metadata": {"name": f"no-{name}", "labels": {"for": "p"}}, "data": {"forbidden": name}}
        await call("create", "configmaps", body=body)
    for name in ("a", "b"):
        refused = await call.refusal("create", "pods", body=pod(name))
        assert refused["message"].endswith(f"denied request: no-{name}")
    await call("create", "pods", body=pod("c"))


@scene
async def test_a_kind_of_parameters_that_is_not_served_is_an_error_of_the_policy(call):
    await call.policy(
        "p",
        {"expression": "true"},
        paramKind={"apiVersion": "example.com/v1", "kind": "Limit"},
        binding={"paramRef": {"name": "x", "parameterNotFoundAction": "Allow"}},
    )
    refused = await call.refusal("create", "pods", body=pod())
    assert refused["message"].endswith(
        "ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource "
        "referenced by paramKind: 'example.com/v1, Kind=Limit'"
    )


@scene
async def test_request_and_namespace_and_authorizer_are_what_they_are(call):
    await call("create", "namespaces", body={"metadata": {"name": "blue", "labels": {"team": "blue"}}})
    checks = [
        "request.operation == 'CREATE' && request.kind.kind == 'Pod' && request.resource.resource == 'pods'",
        f"request.userInfo.username == '{ADMIN.user}'",
        "namespaceObject.metadata.labels.team == 'blue'",
        "oldObject == null && !request.dryRun",
        "authorizer.group('').resource('pods').namespace('blue').check('create').allowed()",
        "!authorizer.serviceAccount('blue', 'default').group('').resource('secrets').check('get').allowed()",
        "authorizer.requestResource.check('create').allowed()",
    ]
    await call.policy("p", *({"expression": each} for each in checks))
    assert (await call.answer("create", "pods", body=pod(), namespace="blue")).code == 201
    refused = await call.refusal("create", "pods", body=pod(name="q"))
    assert "namespaceObject.metadata.labels.team" in refused["message"]


@scene
async def test_namespace_and_object_selectors_conditions_and_excluded_rules_narrow_a_policy(call):
    await call("create", "namespaces", body={"metadata": {"name": "blue", "labels": {"team": "blue"}}})
    await call.policy(
        "p",
        {"expression": "false"},
        matchConstraints={
            "resourceRules": [PODS],
            "excludeResourceRules": [{**PODS, "resourceNames": ["free"]}],
            "namespaceSelector": {"matchLabels": {"team": "blue"}},
            "objectSelector": {"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]},
        },
        matchConditions=[{"name": "not-admin", "expression": "object.metadata.name != 'admin'"}],
    )
    for name, namespace, labels in (("p", "default", {}), ("free", "blue", {}), ("admin", "blue", {})):
        await call("create", "pods", body=pod(name, **labels), namespace=namespace)
    await call("create", "pods", body=pod("s", skip="yes"), namespace="blue")
    refused = await call.refusal("create", "pods", body=pod("p"), namespace="blue")
    assert "ValidatingAdmissionPolicy 'p' with binding 'p-b' denied request" in refused["message"]


@scene
async def test_deletion_is_examined_with_the_old_object_in_a_collection_too(call):
    rule = {**PODS, "operations": ["DELETE"]}
    await call.policy(
        "p",
        {"expression": "object == null && !('keep' in oldObject.metadata.labels)", "message": "kept"},
        matchConstraints={"resourceRules": [rule]},
    )
    await call("create", "pods", body=pod("a", keep="yes"))
    await call("create", "pods", body=pod("b", app="x"))
    refused = await call.refusal("delete", "pods", "a")
    assert refused["message"].endswith("denied request: kept")
    refused = await call.refusal("deletecollection", "pods")
    assert refused["message"].endswith("denied request: kept")
    assert [each["metadata"]["name"] for each in (await call("list", "pods"))["items"]] == ["a"]


@scene
async def test_a_policy_is_for_the_subresources_it_names(call):
    await call.policy(
        "p", {"expression": "false"}, matchConstraints={"resourceRules": [{**PODS, "resources": ["pods/status"]}]}
    )
    await call("create", "pods", body=pod())
    await call("patch", "pods", "p", {"metadata": {"labels": {"a": "b"}}}, patch_type="merge")
    refused = await call.refusal(
        "patch", "pods", "p", {"status": {"phase": "Running"}}, subresource="status", patch_type="merge"
    )
    assert "denied request" in refused["message"]


@scene
async def test_a_binding_of_a_pod_is_what_is_examined_on_that_subresource(call):
    rule = {**PODS, "resources": ["pods/binding"]}
    await call.policy(
        "p",
        {"expression": "request.subResource == 'binding' && object.target.name != 'n1'", "message": "not n1"},
        matchConstraints={"resourceRules": [rule]},
    )
    await call("create", "pods", body=pod())
    refused = await call.refusal(
        "create",
        "pods",
        "p",
        {"target": {"name": "n1"}},
        subresource="binding",
        identity=Identity("system:kube-scheduler"),
    )
    assert refused["message"].endswith("denied request: not n1")


@scene
async def test_scale_is_examined_as_a_scale(call):
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["*/scale"]}
    await call.policy(
        "p",
        {"expression": "object.kind == 'Scale' && object.spec.replicas <= 3 && oldObject.spec.replicas == 1"},
        matchConstraints={"resourceRules": [rule]},
    )
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
    body = {
        "metadata": {"name": "d"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    await call("create", "deployments.apps", body=body)
    refused = await call.refusal(
        "patch", "deployments.apps", "d", {"spec": {"replicas": 5}}, subresource="scale", patch_type="merge"
    )
    assert "denied request" in refused["message"]
    scaled = await call(
        "patch", "deployments.apps", "d", {"spec": {"replicas": 3}}, subresource="scale", patch_type="merge"
    )
    assert scaled["spec"]["replicas"] == 3


@scene
async def test_another_version_of_a_kind_is_matched_as_an_equivalent_and_not_exactly(call):
    rule = {
        "apiGroups": ["autoscaling"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["horizontalpodautoscalers"],
    }
    check = (
        "request.kind.version == 'v1' && request.requestKind.version == 'v2' && object.apiVersion == 'autoscaling/v1'"
    )
    await call.policy(
        "p", {"expression": f"!({check})", "message": "seen as v1"}, matchConstraints={"resourceRules": [rule]}
    )
    body = {
        "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
    }
    resource = "horizontalpodautoscalers.autoscaling"
    refused = await call.refusal("create", resource, body=body)
    assert refused["message"].endswith("denied request: seen as v1")
    exact = {"spec": {"matchConstraints": {"resourceRules": [rule], "matchPolicy": "Exact"}}}
    await call("patch", f"validatingadmissionpolicies.{GROUP}", "p", exact, patch_type="merge")
    await call("create", resource, body=body)


@scene
async def test_the_kinds_that_configure_admission_are_never_examined(call):
    anything = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    await call.policy("p", {"expression": "false"}, matchConstraints={"resourceRules": [anything]})
    refused = await call.refusal("create", "configmaps", body={"metadata": {"name": "c"}})
    assert "ValidatingAdmissionPolicy 'p' with binding 'p-b' denied request" in refused["message"]
    await call("delete", f"validatingadmissionpolicybindings.{GROUP}", "p-b")
    await call("create", "configmaps", body={"metadata": {"name": "c"}})


@scene
async def test_a_dry_run_is_examined_and_stores_nothing(call):
    await call.policy("p", {"expression": "request.dryRun"})
    await call("create", "pods", body=pod(), dry_run=True)
    assert (await call.refusal("get", "pods", "p"))["reason"] == "NotFound"
    assert "failed expression: request.dryRun" in (await call.refusal("create", "pods", body=pod()))["message"]


@scene
async def test_expressions_of_a_policy_together_have_a_budget(call):
    nested = "[1,2,3,4,5,6,7,8,9,10]"
    expression = (
        f"{nested}.all(a, {nested}.all(b, {nested}.all(c, {nested}.all(d, {nested}.all(e, a + b + c + d + e > 0)))))"
    )
    await call.policy("p", {"expression": expression})
    refused = await call.refusal("create", "pods", body=pod())
    assert "cost limit exceeded" in refused["message"]


@scene
async def test_an_apply_configuration_is_merged_by_the_schema(call):
    await call.mutation(
        "m",
        {
            "patchType": "ApplyConfiguration",
            "applyConfiguration": {
                "expression": "Object{metadata: Object.metadata{labels: {'added': object.metadata.name}}, "
                "spec: Object.spec{containers: [Object.spec.containers{name: 'c', imagePullPolicy: 'Never'}, "
                "Object.spec.containers{name: 'side', image: 'j:1'}]}}"
            },
        },
    )
    made = await call("create", "pods", body=pod(app="web"))
    assert made["metadata"]["labels"] == {"app": "web", "added": "p"}
    names = [(each["name"], each["image"], each.get("imagePullPolicy")) for each in made["spec"]["containers"]]
    assert names == [("c", "i:1", "Never"), ("side", "j:1", "IfNotPresent")]


@scene
async def test_a_json_patch_changes_an_object_and_its_test_may_say_no(call):
    await call.mutation(
        "m",
        {
            "patchType": "JSONPatch",
            "jsonPatch": {
                "expression": "[JSONPatch{op: 'test', path: '/metadata/labels/app', value: 'web'}, "
                "JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/x'), value: 'y'}]"
            },
        },
    )
    made = await call("create", "pods", body=pod("a", app="web"))
    assert made["metadata"]["labels"]["example.com/x"] == "y"
    made = await call("create", "pods", body=pod("b", app="db"))
    assert made["metadata"]["labels"] == {"app": "db"}


@scene
async def test_an_atomic_list_or_an_undeclared_field_in_an_apply_configuration_is_refused(call):
    async def refused_for(expression: str) -> str:
        await call.mutation("m", {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
        refused = await call.refusal("create", "pods", body=pod())
        for kind in ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"):
            await call("delete", f"{kind}.{GROUP}", "m" if kind.endswith("policies") else "m-b")
        assert (refused["code"], refused["reason"]) == (403, "Invalid")
        return str(refused["message"])

    container = "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c', args: ['x']}]}}"
    assert await refused_for(container) == (
        "policy 'm' with binding 'm-b' denied request: error applying patch: invalid ApplyConfiguration: may not "
        "mutate atomic arrays, maps or structs: .spec.containers[0].args"
    )
    assert "field not declared in schema" in await refused_for("Object{spec: Object.spec{nothing: 1}}")
    assert 'expected "Object.spec"' in await refused_for("Object{spec: Object.status{phase: 'x'}}")


@scene
async def test_what_a_mutation_makes_is_defaulted_and_validated_like_any_other_object(call):
    await call.mutation(
        "m",
        {
            "patchType": "JSONPatch",
            "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/spec/restartPolicy', value: 'Sometimes'}]"},
        },
    )
    refused = await call.refusal("create", "pods", body=pod())
    assert "spec.restartPolicy: Unsupported value" in refused["message"]


@scene
async def test_a_policy_that_wants_it_is_evaluated_again_after_a_later_change(call):
    def adds(name: str, expression: str) -> Any:
        return {
            "patchType": "JSONPatch",
            "jsonPatch": {
                "expression": f"{expression} ? [JSONPatch{{op: 'add', path: '/metadata/labels/{name}', value: 'yes'}}] : []"
            },
        }

    await call.mutation("a", adds("first", "'second' in object.metadata.labels"), reinvocationPolicy="IfNeeded")
    await call.mutation("b", adds("second", "true"))
    made = await call("create", "pods", body=pod(app="web"))
    assert made["metadata"]["labels"] == {"app": "web", "first": "yes", "second": "yes"}
    await call(
        "patch",
        f"mutatingadmissionpolicies.{GROUP}",
        "a",
        {"spec": {"reinvocationPolicy": "Never"}},
        patch_type="merge",
    )
    made = await call("create", "pods", body=pod("q", app="web"))
    assert made["metadata"]["labels"] == {"app": "web", "second": "yes"}


@scene
async def test_policies_guard_what_components_write_over_grpc_as_well(call):
    await call.policy("p", {"expression": "false", "message": "none at all"})
    identity = controller_identity("replicaset")
    refused = await call.refusal("create", "pods", body=pod(), identity=identity)
    assert refused["message"].endswith("none at all")


@scene
async def test_in_a_simulation_a_webhook_cannot_be_called_and_its_failure_policy_decides(call):
    hook = {
        "name": "a.example.com",
        "rules": [PODS],
        "clientConfig": {"url": "https://localhost:1/x"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    resource = f"validatingwebhookconfigurations.{GROUP}"
    await call("create", resource, body={"metadata": {"name": "c"}, "webhooks": [hook]})
    refused = await call.refusal("create", "pods", body=pod())
    assert (refused["code"], refused["reason"]) == (500, "InternalError")
    assert refused["message"] == (
        'Internal error occurred: failed calling webhook "a.example.com": failed to call webhook: Post '
        '"https://localhost:1/x": a simulation has no network to call webhooks over'
    )
    ignoring = {"webhooks": [{"name": "a.example.com", "failurePolicy": "Ignore"}]}
    await call("patch", resource, "c", ignoring, patch_type="strategic")
    await call("create", "pods", body=pod())


REFUSED = [
    ("validations", {"validations": [{"expression": "1 +"}]}, "spec.validations[0].expression", "compilation failed"),
    ("type", {"validations": [{"expression": "object.x"}]}, "spec.validations[0].expression", "must evaluate to bool"),
    ("none", {"validations": []}, "spec.validations", "validations or auditAnnotations must contain at least one item"),
    ("reason", {"validations": [{"expression": "true", "reason": "X"}]}, "spec.validations[0].reason", '"Forbidden"'),
    ("params", {"validations": [{"expression": "params.x == 1"}]}, "spec.validations[0].expression", "undeclared reference to 'params'"),
    ("rules", {"matchConstraints": {}}, "spec.matchConstraints.resourceRules", "Required value"),
    ("names", {"variables": [{"name": "if", "expression": "1"}]}, "spec.variables[0].name", "name is not a valid CEL identifier"),
    ("later", {"variables": [{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "1"}]}, "spec.variables[0].expression", "undefined field 'b'"),
    ("conditions", {"matchConditions": [{"name": "a b", "expression": "true"}]}, "spec.matchConditions[0].name", "name part must consist"),
    ("annotation", {"auditAnnotations": [{"key": "k", "valueExpression": "1"}]}, "spec.auditAnnotations[0].valueExpression", "must evaluate to one of [string null_type]"),
    ("kind", {"paramKind": {"apiVersion": "v1", "kind": ""}}, "spec.paramKind.kind", "Required value"),
    ("no version", {"paramKind": {"apiVersion": "example.com/", "kind": "Limit"}}, "spec.paramKind.apiVersion", "version must be specified"),
    ("version", {"paramKind": {"apiVersion": "example.com/1", "kind": "Limit"}}, "spec.paramKind.apiVersion", "a DNS-1035 label must"),
    ("group", {"paramKind": {"apiVersion": "Example_com/v1", "kind": "Limit"}}, "spec.paramKind.apiVersion", "RFC 1123 subdomain must"),
    ("group and version", {"paramKind": {"apiVersion": "a/b/v1", "kind": "Limit"}}, "spec.paramKind.apiVersion", "unexpected GroupVersion string: a/b/v1"),
]  # fmt: skip


@pytest.mark.parametrize(("_", "spec", "path", "text"), REFUSED, ids=[each[0] for each in REFUSED])
def test_a_policy_that_cannot_work_is_refused_when_it_is_written(_, spec, path, text):
    async def scenario() -> None:
        async with a_server() as call:
            whole = {"matchConstraints": {"resourceRules": [PODS]}, "validations": [{"expression": "true"}], **spec}
            body = {"metadata": {"name": "p"}, "spec": whole}
            refused = await call.refusal("create", f"validatingadmissionpolicies.{GROUP}", body=body)
            causes = [(each["field"], each["message"]) for each in refused["details"]["causes"]]
            assert any(field == path and text in message for field, message in causes), causes

    simloop.run(scenario())


@scene
async def test_the_status_of_a_policy_has_what_type_checking_finds(call):
    await call.policy("p", {"expression": "object.spec.replicas > 1"}, {"expression": "has(object.spec.nodeName)"})
    resource = f"validatingadmissionpolicies.{GROUP}"
    await asyncio.sleep(1)
    status = (await call("get", resource, "p"))["status"]
    [warning] = status["typeChecking"]["expressionWarnings"]
    assert (status["observedGeneration"], warning["fieldRef"]) == (1, "spec.validations[0].expression")
    assert warning["warning"].startswith("/v1, Kind=Pod: ERROR: <input>:1:12: undefined field 'replicas'\n")
    good = {"spec": {"validations": [{"expression": "object.spec.containers.all(c, c.image != '')"}]}}
    await call("patch", resource, "p", good, patch_type="merge")
    await asyncio.sleep(1)
    assert (await call("get", resource, "p"))["status"] == {"observedGeneration": 2, "typeChecking": {}}


@scene
async def test_kinds_that_definitions_add_are_examined_and_can_be_parameters(call):
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"max": {"type": "integer"}}}}}
    names = {"plural": "limits", "singular": "limit", "kind": "Limit"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = {
        "metadata": {"name": "limits.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    await call("create", "customresourcedefinitions.apiextensions.k8s.io", body=definition, namespace="")
    await asyncio.sleep(10)
    rule = {"apiGroups": ["example.com"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["limits"]}
    await call.policy("own", {"expression": "object.spec.max < 5"}, matchConstraints={"resourceRules": [rule]})
    await call.policy(
        "pods",
        {"expression": "size(object.spec.containers) <= params.spec.max"},
        paramKind={"apiVersion": "example.com/v1", "kind": "Limit"},
        binding={"paramRef": {"name": "x", "parameterNotFoundAction": "Deny"}},
    )

    def limit(most: int) -> Any:
        return {"apiVersion": "example.com/v1", "kind": "Limit", "metadata": {"name": "x"}, "spec": {"max": most}}

    refused = await call.refusal("create", "limits.example.com", body=limit(7))
    assert refused["message"].endswith("denied request: failed expression: object.spec.max < 5")
    await call.refusal("create", "pods", body=pod())
    await call("create", "limits.example.com", body=limit(1))
    await call("create", "pods", body=pod())
    two = pod("two")
    two["spec"]["containers"].append({"name": "d", "image": "i:1"})
    await call.refusal("create", "pods", body=two)


@scene
async def test_a_policy_formats_a_number_with_thirty_digits_and_decides_by_it(call):
    await call.policy("p", {"expression": "'%.30f'.format([double(object.metadata.name.size())]) == '3.' + '0000000000' + '0000000000' + '0000000000'"})  # fmt: skip
    await call("create", "pods", body=pod("abc"))
    assert 422 == (await call.refusal("create", "pods", body=pod("ab")))["code"]


@pytest.mark.parametrize(
    "expression", ["null.ip() == ip('1.1.1.1')", "[dyn(1)][dyn(double('NaN'))] == 1", "[dyn(1), dyn('a')].sum() == 1"]
)
def test_a_validation_without_a_value_is_a_refusal(expression):
    @scene
    async def run(call):
        await call.policy("p", {"expression": expression})
        refused = await call.refusal("create", "pods", body=pod())
        assert (422, True) == (refused["code"], f"expression '{expression}' resulted in error: " in refused["message"])
        dry = await call.refusal("create", "pods", body=pod(), dry_run=True)
        assert 422 == dry["code"]

    run()


FAULTY = {"expression": "object.metadata.name.startsWith('p')"}


def test_a_fault_in_an_expression_refuses_the_request_wherever_it_is_written(monkeypatch):
    @scene
    async def run(call):
        await call.policy("valid", FAULTY)
        await call.policy("variable", {"expression": "variables.is"}, variables=[{"name": "is", **FAULTY}])
        await call.policy("condition", {"expression": "true"}, matchConditions=[{"name": "is", **FAULTY}])
        await call.mutation(
            "mutates",
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {'a': object.metadata.name.lowerAscii()}}}"}},
            reinvocationPolicy="Never",
        )  # fmt: skip
        monkeypatch.setattr("services.cel.evaluator._matches", lambda *_: {}["broken on purpose"])
        refused = await call.refusal("create", "pods", body=pod())
        assert (True, True) == (400 <= refused["code"] < 500, "internal error: KeyError" in refused["message"])
        for name in ("valid", "variable", "condition"):
            await call("delete", f"validatingadmissionpolicybindings.{GROUP}", f"{name}-b")
        refused = await call.refusal("create", "pods", body=pod())
        assert "internal error: KeyError" in refused["message"]
        assert refused["code"] < 500 or refused["reason"] == "InternalError"

    run()
