"""What may change of a pod, in its spec, annotations and status, and what templates may not have."""

from __future__ import annotations

import pytest

from tests.unit.apiserver_fake.registry.validation.pods.rules import (
    SUBDOMAIN,
    container,
    pod,
    wrong,
    wrong_status,
    wrong_update,
)

COUNT = "pod updates may not add or remove containers"
NODE_TERMS = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
HARD = "requiredDuringSchedulingIgnoredDuringExecution"
IDS = "must be between 0 and 2147483647, inclusive"
COST = "controller.kubernetes.io/pod-deletion-cost"
ARMOR = "container.apparmor.security.beta.kubernetes.io/c"
SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
ENDED = {"terminated": {"exitCode": 1}}


@pytest.mark.parametrize(
    ("more", "changes", "found"),
    [
        ({}, {"containers": [container(image="i:2")], "activeDeadlineSeconds": 9, "terminationGracePeriodSeconds": 30}, []),
        ({"activeDeadlineSeconds": 9}, {"activeDeadlineSeconds": 3}, []),
        ({}, {"containers": [container(), container(name="d")]}, [f"spec.containers: Forbidden: {COUNT}"]),
        ({}, {"initContainers": [container(name="d")]}, [f"spec.initContainers: Forbidden: {COUNT}"]),
        ({}, {"containers": [container(image="i:1 ")]},
         ['spec.containers[0].image: Invalid value: "i:1 ": must not have leading or trailing whitespace'] * 2),
        ({"activeDeadlineSeconds": 3}, {"activeDeadlineSeconds": 9},
         ["spec.activeDeadlineSeconds: Invalid value: 9: must be less than or equal to previous value"]),
        ({"activeDeadlineSeconds": 3}, {"activeDeadlineSeconds": None},
         ["spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"]),
        ({"tolerations": [{"key": "a", "operator": "Exists"}]}, {"tolerations": [{"key": "b", "operator": "Exists"}]},
         ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"]),
        ({"schedulingGates": [{"name": "a"}]}, {"schedulingGates": [{"name": "b"}]},
         ["spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'b'"]),
        ({"schedulingGates": [{"name": "a"}], "nodeSelector": {"a": "b"}}, {"nodeSelector": {"a": "b", "c": "d"}}, []),
        ({"schedulingGates": [{"name": "a"}], "nodeSelector": {"a": "b"}}, {"nodeSelector": {"a": "c"}},
         [('spec.nodeSelector: Invalid value: {"a":"c"}: '
          "only additions to spec.nodeSelector are allowed (no mutations or deletions)")]),
        ({"schedulingGates": [{"name": "a"}],
          "affinity": {"nodeAffinity": {HARD: {"nodeSelectorTerms": [{"matchFields": [
              {"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}}}},
         {"affinity": None},
         [f"{NODE_TERMS}: Invalid value: null: no additions/deletions to non-empty NodeSelectorTerms list are allowed"]),
    ],
)  # fmt: skip
def test_little_of_a_pod_changes(world, more, changes, found):
    assert wrong_update(world, world.create("pods", pod(**more)), **changes) == found


def test_what_else_changes_is_shown_line_by_line(world):
    stored = world.create("pods", pod(hostname="a"))
    [said] = wrong_update(world, stored, hostname="b")
    why, changed = said.split("\n", 1)
    assert why == (
        "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
        "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
        "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
    )
    assert [line for line in changed.split("\n") if line[:1] in "+-" and line] == [
        '- "hostname": "a",',
        '+ "hostname": "b",',
    ]


@pytest.mark.parametrize(
    ("annotations", "spec", "found"),
    [
        ({COST: "-3", SECCOMP: "localhost/a", ARMOR: "runtime/default"}, {}, []),
        ({"kubernetes.io/config.mirror": "x"}, {},
         [('metadata.annotations[kubernetes.io/config.mirror]: Invalid value: "x": '
          "must set spec.nodeName if mirror pod annotation is set")]),
        ({COST: "+3"}, {}, [f'metadata.annotations[{COST}]: Invalid value: "+3": must be a 32bit integer']),
        ({SECCOMP: "zz"}, {}, [f'metadata.annotations.{SECCOMP}: Invalid value: "zz": must be a valid seccomp profile']),
        ({f"{ARMOR}d": "zz"}, {},
         [f'metadata.annotations[{ARMOR}d]: Invalid value: "cd": container not found',
          f'metadata.annotations[{ARMOR}d]: Invalid value: "zz": invalid AppArmor profile name: "zz"']),
        ({SECCOMP: "unconfined"}, {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}},
         ["spec.securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match"]),
        ({ARMOR: "localhost/a"},
         {"containers": [container(securityContext={"appArmorProfile": {"type": "Localhost", "localhostProfile": "b"}})]},
         [("spec.containers[0].securityContext.appArmorProfile.localhostProfile: Forbidden: "
          "apparmor profile in annotation and field must match")]),
    ],
)  # fmt: skip
def test_annotations_that_mean_something(world, annotations, spec, found):
    assert wrong(world, pod(annotations, **spec)) == found


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({COST: "1"}, {COST: "2"}, []),
        ({}, {ARMOR: "unconfined"}, [f"metadata.annotations[{ARMOR}]: Forbidden: may not add AppArmor annotations"]),
        ({ARMOR: "unconfined"}, {},
         [f"metadata.annotations[{ARMOR}]: Forbidden: may not remove or update AppArmor annotations"]),
    ],
)  # fmt: skip
def test_annotations_that_may_not_change(world, before, after, found):
    stored = world.create("pods", pod(before))
    new = {**stored, "metadata": {**stored["metadata"], "annotations": after}}
    causes, _ = world.try_update("pods", stored, new)
    assert [f"{cause.path}: {cause.message}" for cause in causes] == found


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "hostIP": "10.0.0.2",
          "hostIPs": [{"ip": "10.0.0.2"}]}, []),
        ({"conditions": [{"type": "a b", "status": "True", "observedGeneration": -1}]},
         ["status.conditions[0].observedGeneration: Invalid value: -1: must be a non-negative integer",
          ('status.conditions[0].Type: Invalid value: "a b": name part must consist of alphanumeric characters, \'-\', '
          "'_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or "
          "'123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')")]),
        ({"nominatedNodeName": "A"}, [f'status.nominatedNodeName: Invalid value: "A": {SUBDOMAIN}']),
        ({"podIP": "a"},
         ['status.podIPs[0]: Invalid value: "a": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)']),
        ({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]},
         [('status.podIPs: Invalid value: [{"IP":"10.0.0.1"},{"IP":"10.0.0.2"}]: '
          "may specify no more than one IP for each IP family")]),
        ({"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.2"}]},
         ['status.hostIPs[0].ip: Invalid value: "10.0.0.2": must be equal to `hostIP`']),
        ({"containerStatuses": [{"name": "c", "user": {"linux": {"uid": -1, "gid": 0, "supplementalGroups": [1 << 31]}}}]},
         [f"status.containerStatuses[0].user.linux.uid: Invalid value: -1: {IDS}",
          f"status.containerStatuses[0].user.linux.supplementalGroups[0]: Invalid value: 2147483648: {IDS}"]),
        ({"phase": "zz"},
         [('status.phase: Unsupported value: "zz": supported values: '
          '"Pending", "Running", "Succeeded", "Failed", "Unknown"')]),
    ],
)  # fmt: skip
def test_a_status_is_well_formed(world, status, found):
    assert wrong_status(world, world.create("pods", pod()), **status) == found


@pytest.mark.parametrize(
    ("policy", "code", "is_allowed"),
    [("Always", 0, True), ("OnFailure", 1, True), ("OnFailure", 0, False), ("Never", 1, False)],
)
def test_a_container_that_ended_runs_again_only_where_it_is_restarted(world, policy, code, is_allowed):
    stored = world.create("pods", pod(restartPolicy=policy))
    ended = [{"name": "c", "state": {"terminated": {"exitCode": code}}}]
    stored = {**stored, "status": {**stored["status"], "containerStatuses": ended}}
    said = wrong_status(world, stored, containerStatuses=[{"name": "c", "state": {"running": {}}}])
    text = "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
    assert said == ([] if is_allowed else [text])


LABEL_KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


@pytest.mark.parametrize(
    ("resource", "kind"),
    [("deployments.apps", "ReplicaSet"), ("replicasets.apps", "ReplicaSet"), ("statefulsets.apps", "StatefulSet"),
     ("daemonsets.apps", "DaemonSet")],
)  # fmt: skip
def test_a_template_is_a_pod_that_never_ends(world, resource, kind):
    spec = {
        "containers": [container(name="A")],
        "restartPolicy": "Never",
        "activeDeadlineSeconds": 3,
        "ephemeralContainers": [container(name="e")],
        "terminationGracePeriodSeconds": -1,
    }
    template = {"metadata": {"labels": {"a": "b"}, "annotations": {"a b": "c"}}, "spec": spec}
    causes, _ = world.try_create(resource, {
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template, "serviceName": "s"},
    })  # fmt: skip
    said = [f"{cause.path}: {cause.message}" for cause in causes]
    assert said == [
        f'spec.template.annotations: Invalid value: "a b": {LABEL_KEY}',
        (
            'spec.template.spec.containers[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower '
            "case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  "
            "or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        ),
        "spec.template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template",
        'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
        f"spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in {kind} is not Supported",
    ]


@pytest.mark.parametrize("resource", ["jobs.batch", "cronjobs.batch"])
def test_a_jobs_template_is_a_pod_that_ends(world, resource):
    job = {"template": {"spec": {"containers": [container()], "restartPolicy": "Always", "hostNetwork": True}}}
    job["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 81}]
    spec = job if resource == "jobs.batch" else {"schedule": "* * * * *", "jobTemplate": {"spec": job}}
    causes, _ = world.try_create(
        resource, {"metadata": {"name": "w", "namespace": "default", "uid": "u"}, "spec": spec}
    )
    at = "spec.template.spec" if resource == "jobs.batch" else "spec.jobTemplate.spec.template.spec"
    assert [f"{cause.path}: {cause.message}" for cause in causes] == [
        f"{at}.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true",
        f'{at}.restartPolicy: Required value: valid values: "OnFailure", "Never"',
    ]


def a_set(claims, *mounts, volumes=(), **more):
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "containers": [
                container(volumeMounts=[{"name": name, "mountPath": f"/{name}"} for name in mounts], **more)
            ],
            "volumes": list(volumes),
        },
    }
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template, "serviceName": "s"}
    spec["volumeClaimTemplates"] = [{"metadata": {"name": name}, "spec": CLAIM} for name in claims]
    return {"metadata": {"name": "w", "namespace": "default"}, "spec": spec}


CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
OWN = [{"name": "data", "emptyDir": {}, "nfs": {}}, {"name": "own", "emptyDir": {}}]


def test_a_set_of_pods_has_the_volumes_of_its_claims_before_its_own(world):
    assert world.try_create("statefulsets.apps", a_set(["data", "data"], "data", "own", volumes=OWN))[0] == []
    causes, _ = world.try_create("statefulsets.apps", a_set(["data"], "data", "logs"))
    assert [f"{cause.path}: {cause.message}" for cause in causes] == [
        'spec.template.spec.containers[0].volumeMounts[1].name: Not found: "logs"'
    ]


def test_a_template_that_is_stored_wrong_stays(world):
    stored = world.create("statefulsets.apps", a_set([]))
    wrong_pod = a_set([], image="")["spec"]["template"]
    causes, _ = world.try_update(
        "statefulsets.apps", stored, {**stored, "spec": {**stored["spec"], "template": wrong_pod}}
    )
    assert [cause.path for cause in causes] == ["spec.template.spec.containers[0].image"]
    stored = {**stored, "spec": {**stored["spec"], "template": wrong_pod}}
    causes, _ = world.try_update("statefulsets.apps", stored, {**stored, "spec": {**stored["spec"], "replicas": 3}})
    assert causes == []
