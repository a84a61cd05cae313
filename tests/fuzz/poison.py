"""Objects that are accepted and made to break who reads them: the scheduler, kubelets, controllers (V11, FM-S8).

A batch of them is created in a simulated mesh that runs something healthy; the mesh must go on with that and with what
comes after, no process may end, and no component may meet an exception that it did not foresee.
"""

import json
import tempfile
from pathlib import Path

import msgspec
import structlog
from hypothesis import strategies as st

from apiserver_fake.extensions.register import whole_catalogue
from apiserver_fake.rest import openapi
from lab.scenarios.run import load_scenario, simulate
from services.api.errors import ApiError
from services.api.identity import ADMIN
from services.api.wire import Request
from services.telemetry import logs
from tests.fuzz.target import valid_objects
from tests.fuzz.values import Schemas, encoded, mutated, one_in, values_of

NAMESPACE = "poison"
LEFT_OUT = frozenset(
    (
        "nodes",  # a node without a kubelet takes pods from others, rightly
        "mutatingwebhookconfigurations.admissionregistration.k8s.io", "validatingwebhookconfigurations.admissionregistration.k8s.io",
        "mutatingadmissionpolicies.admissionregistration.k8s.io", "validatingadmissionpolicies.admissionregistration.k8s.io",
        "customresourcedefinitions.apiextensions.k8s.io", "apiservices.apiregistration.k8s.io",
    )
)  # fmt: skip
OFTEN = ("pods", "pods", "pods", "pods", "deployments.apps", "replicasets.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch", "cronjobs.batch",
         "resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io", "resourceslices.resource.k8s.io", "deviceclasses.resource.k8s.io",
         "horizontalpodautoscalers.autoscaling", "poddisruptionbudgets.policy", "persistentvolumeclaims", "persistentvolumes")  # fmt: skip
HEALTHY = """# Healthy pods beside objects that are not
limit 600s
set GenericWorkload=true
set DRADeviceTaintRules=true
nodes n1..n3 cpu=64 memory=256Gi
replicaset before replicas=3 cpu=100m
expect within 60s count pods metadata.namespace=default phase=Running == 3
wait 90s
replicaset after replicas=3 cpu=100m
expect within 60s count pods metadata.namespace=default phase=Running == 6
delete replicaset/before
expect within 90s count pods metadata.namespace=default phase=Running == 3
"""


def schemas_of(catalogue):
    """Return what is served of the kinds' types."""
    found = (openapi.group_version_answer(catalogue, group, version) for group, version in catalogue.served_versions)
    return Schemas([msgspec.json.decode(each.body) for each in found if each is not None])


@st.composite
def objects(draw, catalogue, schemas):
    """A kind, the bytes of an object of it, and those of a status to write then, or none."""
    every = sorted(set(catalogue.resources) - LEFT_OUT)
    resource = catalogue.resources[draw(st.sampled_from([*OFTEN, *OFTEN, *every]))]
    schema = schemas.of(resource.group, resource.version, resource.kind)
    document = {**valid_objects().get(resource.name, {}), "apiVersion": resource.api_version, "kind": resource.kind}
    meta = {"name": f"p{draw(st.integers(0, 10_000))}", **document.get("metadata", {})}
    document["metadata"] = meta
    if draw(one_in(2)):
        # What others leave alone would reach no reader.
        for path in (
            ("suspend",),
            ("replicas",),
            ("parallelism",),
            ("schedulingGates",),
            ("nodeSelector",),
            ("affinity",),
            ("resourceClaims",),
        ):
            if "spec" in document:
                document["spec"] = {name: value for name, value in document["spec"].items() if name != path[0]}
    body = encoded(draw(mutated(schemas, schema, document)))
    status = b""
    if "status" in resource.subresources and draw(one_in(3)):
        status = encoded({"status": draw(values_of(schemas, (schema.get("properties") or {}).get("status")))})
    return resource.name, meta["name"], body, status


CATALOGUE = whole_catalogue()
batches = st.lists(objects(CATALOGUE, schemas_of(CATALOGUE)), min_size=60, max_size=60)
HAND_MADE = [
    # Source: guarantees FM-S8.
    ("pods", {"spec": {"containers": [{"name": f"c{i}", "image": "i"} for i in range(100)]}}),
    ("pods", {"metadata": {"annotations": {f"k{i}": "x" * 1_000 for i in range(250)}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    ("pods", {"spec": {"containers": [{"name": "c", "image": "i"}], "tolerations": [{"key": f"k{i}", "operator": "Exists"} for i in range(198)]}}),
    ("pods", {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "9223372036854775"}}}]}}),
    ("pods", {"spec": {"containers": [{"name": "c", "image": "i", "livenessProbe": {"httpGet": {"port": "none"}, "periodSeconds": 2**31 - 1}}]}}),
    ("pods", {"spec": {"containers": [{"name": "c", "image": "i"}], "activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 2**31}}),
    ("pods", {"spec": {"containers": [{"name": "c", "image": "i"}], "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": f"k{i}", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}} for i in range(50)]}}),
    ("pods", {"spec": {"containers": [{"name": "c", "image": "i"}], "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": {}}]}}}}),
    ("pods", {"spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "$(A)$(B)$$(C"}], "args": ["$(A)" * 1_000]}]}}),
    ("pods", {"spec": {"containers": [{"name": "c", "image": "i", "lifecycle": {"preStop": {"exec": {"command": ["\u202e" * 100]}}}}]}}),
    ("cronjobs.batch", {"spec": {"schedule": "0 0 31 2 *", "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}}),
    ("cronjobs.batch", {"spec": {"schedule": "* * * * *", "startingDeadlineSeconds": 0, "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}}),
    ("jobs.batch", {"spec": {"completions": 2**31 - 1, "parallelism": 1, "completionMode": "NonIndexed", "backoffLimit": 2**31 - 1, "ttlSecondsAfterFinished": 0,
                             "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}),
    ("statefulsets.apps", {"spec": {"replicas": 1, "serviceName": "", "ordinals": {"start": 2**31 - 2}, "selector": {"matchLabels": {"z": "z"}},
                                    "template": {"metadata": {"labels": {"z": "z"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
    ("deployments.apps", {"spec": {"replicas": 3, "strategy": {"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": "0%"}}, "selector": {"matchLabels": {"y": "y"}},
                                   "template": {"metadata": {"labels": {"y": "y"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
    ("horizontalpodautoscalers.autoscaling", {"spec": {"scaleTargetRef": {"kind": "Deployment", "apiVersion": "apps/v1", "name": "absent"}, "maxReplicas": 2**31 - 1,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "7Ei"}}}]}}),
    ("resourceslices.resource.k8s.io", {"spec": {"driver": "d.example.com", "allNodes": True, "pool": {"name": "p", "generation": 2**63 - 1, "resourceSliceCount": 2**31 - 1},
        "devices": [{"name": f"d{i}", "attributes": {"a": {"string": "x" * 64}}, "capacity": {"m": {"value": "9223372036854775807"}}} for i in range(128)]}}),
    ("leases.coordination.k8s.io", {"spec": {"holderIdentity": "h", "leaseDurationSeconds": 2**31 - 1, "renewTime": "9999-12-31T23:59:59.000000Z"}}),
    ("poddisruptionbudgets.policy", {"spec": {"selector": {}, "minAvailable": "100%"}}),
    ("persistentvolumes", {"spec": {"capacity": {"storage": "7Ei"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/a"}, "claimRef": {"namespace": NAMESPACE, "name": "absent", "uid": "u"}}}),
]  # fmt: skip


def hand_made():
    """Return what FM-S8 names and its like, as a batch."""
    found = []
    for number, (name, document) in enumerate(HAND_MADE):
        meta = {"name": f"hand-{number}", **document.get("metadata", {})}
        found.append((name, meta["name"], json.dumps({**document, "metadata": meta}).encode(), b""))
    return found


def hand_made_documents():
    """Return the same as whole documents."""
    found = []
    for name, _, body, _ in hand_made():
        resource, document = CATALOGUE.resources[name], json.loads(body)
        if resource.namespaced:
            document["metadata"]["namespace"] = NAMESPACE
        found.append({"apiVersion": resource.api_version, "kind": resource.kind, **document})
    return found


class Outcome:
    """What came of a batch: objects taken and refused, exceptions that components logged, and what is wrong."""

    def __init__(self):
        self.taken = self.refused = 0
        self.logged = {}
        self.wrong = []


def run(batch, *, seed=1):
    """Put the batch into a mesh and return what came of it. No component may log an exception, not even once."""
    outcome = Outcome()

    async def disturb(auditor, mesh, observer, finished):
        api = mesh.api(ADMIN)
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await api.call(Request(verb="create", resource="namespaces", body=json.dumps(space).encode()))
        for name, object_name, body, status in batch:
            resource = CATALOGUE.resources[name]
            space = NAMESPACE if resource.namespaced else ""
            # As a client of REST is: unknown fields are dropped, what is missing is made.
            made = Request(verb="create", resource=name, namespace=space, body=body, field_validation="Warn")
            try:
                answer = await api.call(made)
                if answer.is_ok and status:
                    await api.call(
                        Request(
                            verb="patch",
                            patch_type="merge",
                            resource=name,
                            namespace=space,
                            name=object_name,
                            subresource="status",
                            body=status,
                            field_validation="Warn",
                        )
                    )
            except ApiError:
                outcome.refused += 1
                continue
            outcome.taken += answer.is_ok
            outcome.refused += not answer.is_ok
            if answer.code >= 500:
                outcome.wrong.append(f"{answer.code} to {name} {body!r}: {answer.body!r}")

    def keep(logger, method, line):
        if error := line.get("exc_info"):
            error = error if isinstance(error, BaseException) else RuntimeError(str(line))
            key = f"{line.get('event')}: {error!r} at {_place(error)}"
            outcome.logged[key] = outcome.logged.get(key, 0) + 1
        raise structlog.DropEvent

    with tempfile.TemporaryDirectory(prefix="keplab-fuzz-") as folder:
        path = Path(folder) / "poison.txt"
        path.write_text(HEALTHY)
        set_up = logs.set_up
        logs.set_up = lambda *_, **__: structlog.configure(processors=[keep], cache_logger_on_first_use=False)
        try:
            result = simulate(load_scenario(path), seed=seed, disturb=disturb)
        finally:
            logs.set_up = set_up
            structlog.reset_defaults()
    outcome.wrong += [
        f"{each.text}: {each.seen} at {each.at_s:.0f} s" for each in result.expectations if not each.passed
    ]
    outcome.wrong += result.failures
    outcome.wrong += [result.error] if result.error else []
    outcome.wrong += [f"logged {count} times: {text}" for text, count in outcome.logged.items()]
    return outcome


def _place(error):
    step, at = error.__traceback__, ""
    while step is not None:
        at, step = f"{step.tb_frame.f_code.co_filename.rpartition('/')[2]}:{step.tb_lineno}", step.tb_next
    return at


def check(batch):
    """Raises: AssertionError with what is wrong."""
    outcome = run(batch)
    assert outcome.wrong == [], "\n".join(outcome.wrong)
