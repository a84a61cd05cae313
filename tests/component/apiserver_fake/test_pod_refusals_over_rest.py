"""Pods that are refused, as HTTP clients see it: the whole Status; and what only other objects' absence refuses."""

from __future__ import annotations

import asyncio

from tests.component.apiserver_fake.test_access import PODS, a_cluster

WRONG = {
    "metadata": {"name": "p"},
    "spec": {
        "restartPolicy": "zz",
        "volumes": [{"name": "v"}, {"name": "v", "emptyDir": {}}],
        "containers": [
            {
                "name": "A",
                "image": "",
                "env": [{"name": "1="}],
                "ports": [{"containerPort": 80, "hostPort": 90000}],
                "volumeMounts": [{"name": "logs", "mountPath": "/a"}],
            }
        ],
        "terminationGracePeriodSeconds": -1,
    },
}
C0 = "spec.containers[0]"
CAUSES = [
    ("spec.volumes[1].name", "FieldValueDuplicate", 'Duplicate value: "v"'),
    (f"{C0}.name", "FieldValueInvalid",
     ('Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \'-\', and must '
     "start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
     "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')")),
    (f"{C0}.image", "FieldValueRequired", "Required value"),
    (f"{C0}.ports[0].hostPort", "FieldValueInvalid", "Invalid value: 90000: must be between 1 and 65535, inclusive"),
    (f"{C0}.env[0].name", "FieldValueInvalid",
     ('Invalid value: "1=": a valid environment variable name must consist only of printable ASCII characters other than '
     "'='")),
    (f"{C0}.volumeMounts[0].name", "FieldValueNotFound", 'Not found: "logs"'),
    ("spec.restartPolicy", "FieldValueNotSupported",
     'Unsupported value: "zz": supported values: "Always", "OnFailure", "Never"'),
    ("spec.terminationGracePeriodSeconds", "FieldValueInvalid",
     "Invalid value: -1: must be greater than or equal to 0"),
]  # fmt: skip


def test_everything_that_is_wrong_with_a_pod_is_in_one_status(tmp_path):
    async def scenario():
        async with a_cluster(tmp_path) as cluster:
            await cluster.account("default")
            return await cluster.call("admin", "POST", PODS, WRONG)

    code, status = asyncio.run(asyncio.wait_for(scenario(), 30))
    assert code == 422
    assert status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f'Pod "p" is invalid: [{", ".join(f"{path}: {message}" for path, _, message in CAUSES)}]',
        "reason": "Invalid",
        "details": {
            "name": "p",
            "kind": "Pod",
            "causes": [{"reason": reason, "message": message, "field": path} for path, reason, message in CAUSES],
        },
        "code": 422,
    }


def test_a_pod_needs_the_account_and_the_runtime_class_that_it_names(tmp_path):
    async def scenario():
        async with a_cluster(tmp_path) as cluster:
            await cluster.account("default")
            return await cluster.pod(serviceAccountName="nobody"), await cluster.pod(runtimeClassName="gvisor")

    (no_account, said), (no_class, why) = asyncio.run(asyncio.wait_for(scenario(), 30))
    assert (no_account, said["reason"], no_class, why["reason"]) == (403, "Forbidden", 403, "Forbidden")
    assert said["message"] == (
        'pods "p" is forbidden: error looking up service account default/nobody: serviceaccount "nobody" not found'
    )
    assert why["message"] == 'pods "p" is forbidden: pod rejected: RuntimeClass "gvisor" not found'
