"""A pod's containers: names, ports, environment, mounts, probes, hooks, resources; the texts are upstream's."""

from __future__ import annotations

import pytest

from apiserver_fake.registry.validation.formats import CONFIG_KEY_TEXT, ENV_NAME_TEXT
from tests.unit.apiserver_fake.registry.validation.pods.rules import (
    C0,
    LABEL,
    NAME_PART,
    SUBDOMAIN,
    container,
    pod,
    wrong,
)

EXEC = {"exec": {"command": ["true"]}}
RANGE = "must be between 1 and 65535, inclusive"
ONE_SOURCE = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
VARIABLE_FIELDS = (
    '"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", '
    '"status.hostIPs", "status.podIP", "status.podIPs"'
)
RESOURCES = (
    '"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", '
    '"requests.memory"'
)


def said(world, found, more, **spec):
    """Whether exactly this is wrong with a container that has more; `#` stands for its path."""
    return wrong(world, pod(containers=[container(**more)], **spec)) == [each.replace("#", C0) for each in found]


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"name": ""}, ["#.name: Required value"]),
        ({"name": "A"}, [f'#.name: Invalid value: "A": {LABEL}']),
        ({"name": "a.b"}, ['#.name: Invalid value: "a.b": must not contain dots']),
        ({"name": "a" * 64}, [f'#.name: Invalid value: "{"a" * 64}": must be no more than 63 characters']),
        ({"image": ""}, ["#.image: Required value"]),
        ({"image": " i"}, ['#.image: Invalid value: " i": must not have leading or trailing whitespace']),
        ({"terminationMessagePolicy": "zz"},
         ['#.terminationMessagePolicy: Unsupported value: "zz": supported values: "File", "FallbackToLogsOnError"']),
        ({"imagePullPolicy": "zz"},
         ['#.imagePullPolicy: Unsupported value: "zz": supported values: "Always", "IfNotPresent", "Never"']),
        ({"imagePullPolicy": "", "terminationMessagePolicy": "", "terminationMessagePath": ""}, []),
    ],
)  # fmt: skip
def test_a_container_has_a_name_and_an_image(world, more, found):
    assert said(world, found, more)


@pytest.mark.parametrize(
    ("port", "found"),
    [
        ({"containerPort": 80, "name": "http", "protocol": ""}, []),
        ({}, [".containerPort: Required value"]),
        ({"containerPort": 70000, "hostPort": -1},
         [f".containerPort: Invalid value: 70000: {RANGE}", f".hostPort: Invalid value: -1: {RANGE}"]),
        ({"containerPort": 1, "protocol": "ICMP"},
         ['.protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"']),
        ({"containerPort": 1, "name": "sixteen-letters-"},
         ['.name: Invalid value: "sixteen-letters-": must be no more than 15 characters',
          '.name: Invalid value: "sixteen-letters-": must not begin or end with a hyphen']),
        ({"containerPort": 1, "name": "HTTP"},
         ['.name: Invalid value: "HTTP": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)',
          '.name: Invalid value: "HTTP": must contain at least one letter (a-z)']),
        ({"containerPort": 1, "name": "80"}, ['.name: Invalid value: "80": must contain at least one letter (a-z)']),
        ({"containerPort": 1, "name": "a--b"}, ['.name: Invalid value: "a--b": must not contain consecutive hyphens']),
        ({"containerPort": 1, "hostIP": "x"}, []),
    ],
)  # fmt: skip
def test_ports_have_numbers_and_names_of_services(world, port, found):
    assert said(world, [f"#.ports[0]{each}" for each in found], {"ports": [port]})


def test_names_of_ports_and_ports_of_the_host_are_there_once(world):
    ports = [{"containerPort": 1, "name": "a", "hostPort": 5}, {"containerPort": 2, "name": "a", "hostPort": 5}]

    assert said(
        world,
        ['#.ports[1].name: Duplicate value: "a"', '#.ports[1].hostPort: Duplicate value: "TCP//5"'],
        {"ports": ports},
    )


def test_ports_of_the_host_are_shared_by_init_containers_with_none(world):
    one, other = ({"ports": [{"containerPort": 1, "hostPort": 5}], **container(name=name)} for name in "ab")
    twice = {**container(name="t"), "ports": [{"containerPort": 1, "hostPort": 6}] * 2}

    assert wrong(world, pod(initContainers=[one], containers=[other])) == []
    assert wrong(world, pod(containers=[one, other])) == [
        'spec.containers[1].ports[0].hostPort: Duplicate value: "TCP//5"'
    ]
    # As upstream: whichever init container it is, it is named as the first.
    assert wrong(world, pod(initContainers=[one, twice], containers=[other])) == [
        'spec.initContainers[0].ports[1].hostPort: Duplicate value: "TCP//6"'
    ]


@pytest.mark.parametrize(
    ("variable", "found"),
    [
        ({"name": "A B.c-D*", "value": "1"}, []),
        ({}, [".name: Required value"]),
        ({"name": "1="}, [f'.name: Invalid value: "1=": {ENV_NAME_TEXT}']),
        ({"name": "ä"}, [f'.name: Invalid value: "ä": {ENV_NAME_TEXT}']),
        ({"name": "A", "valueFrom": {}}, [f'.valueFrom: Invalid value: "": {ONE_SOURCE}']),
        ({"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
         ['.valueFrom: Invalid value: "": may not be specified when `value` is not empty']),
        ({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}, "secretKeyRef": {"name": "s", "key": "k"}}},
         ['.valueFrom: Invalid value: "": may not have more than one field specified at a time']),
        ({"name": "A", "valueFrom": {"fieldRef": {}}}, [".valueFrom.fieldRef.fieldPath: Required value"]),
        ({"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v2", "fieldPath": "metadata.name"}}},
         [('.valueFrom.fieldRef.fieldPath: Invalid value: "metadata.name": error converting fieldPath: unsupported pod '
          "version: v2")]),
        ({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
         ['.valueFrom.fieldRef.fieldPath: Invalid value: "x": error converting fieldPath: field label not supported: x']),
        ({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.phase"}}},
         [f'.valueFrom.fieldRef.fieldPath: Unsupported value: "status.phase": supported values: {VARIABLE_FIELDS}']),
        ({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.host"}}}, []),
        ({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name['a']"}}},
         [('.valueFrom.fieldRef.fieldPath: Invalid value: "metadata.name[\'a\']": error converting fieldPath: field label does '
          "not support subscript: metadata.name['a']")]),
        ({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['b c']"}}},
         [f'.valueFrom.fieldRef: Invalid value: "b c": {NAME_PART}']),
        ({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['Example.com/A']"}}}, []),
        ({"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.hugepages-2Mi"}}}, []),
        ({"name": "A", "valueFrom": {"resourceFieldRef": {}}}, [".valueFrom.resourceFieldRef.resource: Required value"]),
        ({"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "zz"}}},
         [f'.valueFrom.resourceFieldRef.resource: Unsupported value: "zz": supported values: {RESOURCES}']),
        ({"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1000m"}}}, []),
        ({"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "10m"}}},
         [('.valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor\'s values 1m and 1 are supported '
          "with the cpu resource")]),
        ({"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory", "divisor": "2Mi"}}},
         [('.valueFrom.resourceFieldRef.divisor: Invalid value: "requests.memory": only divisor\'s values 1, 1k, 1M, 1G, 1T, '
          "1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource")]),
        ({"name": "A", "valueFrom": {"configMapKeyRef": {}}},
         [f'.valueFrom.configMapKeyRef.name: Invalid value: "": {SUBDOMAIN}', ".valueFrom.configMapKeyRef.key: Required value"]),
        ({"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "..a/"}}},
         [f'.valueFrom.secretKeyRef.key: Invalid value: "..a/": {CONFIG_KEY_TEXT}',
          ".valueFrom.secretKeyRef.key: Invalid value: \"..a/\": must not start with '..'"]),
        ({"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "e", "path": "a", "key": "K"}}}, []),
        ({"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "s", "path": "a/..", "key": "K"}}},
         [".valueFrom.fileKeyRef.path: Invalid value: \"a/..\": must not contain '..'",
          '.valueFrom.fileKeyRef.volumeName: Invalid value: "s": referenced volume must be of type emptyDir']),
        ({"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "zz"}}},
         [".valueFrom.fileKeyRef.key: Required value", ".valueFrom.fileKeyRef.path: Required value",
          '.valueFrom.fileKeyRef.volumeName: Not found: "zz"']),
    ],
)  # fmt: skip
def test_variables_have_a_name_and_one_source(world, variable, found):
    volumes = [{"name": "e", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "s"}}]

    assert said(world, [f"#.env[0]{each}" for each in found], {"env": [variable]}, volumes=volumes)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ({"configMapRef": {"name": "m"}, "prefix": "P_"}, []),
        ({"secretRef": {"name": "s-"}}, []),
        ({}, ['#.envFrom: Invalid value: "": must specify one of: `configMapRef` or `secretRef`']),
        ({"configMapRef": {"name": "m"}, "secretRef": {"name": "A"}, "prefix": "="},
         [f'#.envFrom[0].prefix: Invalid value: "=": {ENV_NAME_TEXT}', f'#.envFrom[0].secretRef.name: Invalid value: "A": {SUBDOMAIN}',
          '#.envFrom: Invalid value: "": may not have more than one field specified at a time']),
        ({"secretRef": {}}, ["#.envFrom[0].secretRef.name: Required value"]),
    ],
)  # fmt: skip
def test_maps_of_variables_have_one_source(world, source, found):
    assert said(world, found, {"envFrom": [source]})


@pytest.mark.parametrize(
    ("mounts", "devices", "found"),
    [
        ([{"name": "e", "mountPath": "/e", "subPath": "a/b", "mountPropagation": "None"}], [], []),
        ([{}], [], ["#[0].name: Required value", '#[0].name: Not found: ""', "#[0].mountPath: Required value"]),
        ([{"name": "e", "mountPath": "/a"}, {"name": "p", "mountPath": "/a"}], [],
         ['#[1].mountPath: Invalid value: "/a": must be unique']),
        ([{"name": "e", "mountPath": "/a", "subPath": "../../etc"}], [],
         ["#.subPath: Invalid value: \"../../etc\": must not contain '..'"]),
        ([{"name": "e", "mountPath": "/a", "subPath": "/b", "subPathExpr": "$(A)"}], [],
         ['#.subPath: Invalid value: "/b": must be a relative path',
          '#[0].subPathExpr: Invalid value: "$(A)": subPathExpr and subPath are mutually exclusive']),
        ([{"name": "e", "mountPath": "/a", "mountPropagation": "zz"}], [],
         ['#.mountPropagation: Unsupported value: "zz": supported values: "Bidirectional", "HostToContainer", "None"']),
        ([{"name": "e", "mountPath": "/a", "mountPropagation": "Bidirectional", "recursiveReadOnly": "Enabled"}], [],
         ["#.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers",
          "#.recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
          "#.recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not specified"]),
        ([{"name": "e", "mountPath": "/a", "recursiveReadOnly": "zz"}], [],
         ['#.recursiveReadOnly: Unsupported value: "zz": supported values: "Disabled", "Enabled", "IfPossible"']),
        ([], [{"name": "p", "devicePath": "/dev/x"}], []),
        ([{"name": "p", "mountPath": "/dev/x"}], [{"name": "p", "devicePath": "/dev/x"}],
         ['#[0].name: Invalid value: "p": must not already exist in volumeDevices',
          '#[0].mountPath: Invalid value: "/dev/x": must not already exist as a path in volumeDevices',
          '@[0].name: Invalid value: "p": must not already exist in volumeMounts',
          '@[0].devicePath: Invalid value: "/dev/x": must not already exist as a path in volumeMounts']),
        ([], [{"name": "e", "devicePath": "/a/../b"}, {"name": "zz"}, {"name": "zz", "devicePath": "/c"}],
         ['@[0].name: Invalid value: "e": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode',
          "@[0].devicePath: Invalid value: \"/a/../b\": can not contain backsteps ('..')",
          '@[1].name: Not found: "zz"', "@[1].devicePath: Required value",
          '@[2].name: Invalid value: "zz": must be unique', '@[2].name: Not found: "zz"']),
    ],
)  # fmt: skip
def test_volumes_are_mounted_once_each(world, mounts, devices, found):
    volumes = [{"name": "e", "emptyDir": {}}, {"name": "p", "persistentVolumeClaim": {"claimName": "p"}}]
    paths = [each.replace("#", "$.volumeMounts").replace("@", "$.volumeDevices").replace("$", "#", 1) for each in found]

    assert said(world, paths, {"volumeMounts": mounts, "volumeDevices": devices}, volumes=volumes)


@pytest.mark.parametrize(
    ("probe", "found"),
    [
        ({"httpGet": {"port": 80}, "initialDelaySeconds": 0, "periodSeconds": 0}, []),
        ({"grpc": {"port": 1}}, []),
        ({}, ["#: Required value: must specify a handler type"]),
        ({**EXEC, "tcpSocket": {"port": 0}}, ["#.tcpSocket: Forbidden: may not specify more than 1 handler type"]),
        ({"exec": {}}, ["#.exec.command: Required value"]),
        ({"tcpSocket": {"port": -1}}, [f"#.tcpSocket.port: Invalid value: -1: {RANGE}"]),
        ({"tcpSocket": {"port": "HTTP"}},
         ['#.tcpSocket.port: Invalid value: "HTTP": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)',
          '#.tcpSocket.port: Invalid value: "HTTP": must contain at least one letter (a-z)']),
        ({"grpc": {}}, [f"#.grpc.port: Invalid value: 0: {RANGE}"]),
        ({"httpGet": {"port": 70000, "scheme": "ftp", "httpHeaders": [{"name": "a b", "value": "x"}]}},
         [f"#.httpGet.port: Invalid value: 70000: {RANGE}",
          '#.httpGet.scheme: Unsupported value: "ftp": supported values: "HTTP", "HTTPS"',
          ('#.httpGet.httpHeaders: Invalid value: "a b": a valid HTTP header must consist of alphanumeric characters or \'-\' '
          "(e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')")]),
        ({**EXEC, "initialDelaySeconds": -1, "timeoutSeconds": -1, "periodSeconds": -1, "failureThreshold": -1,
          "terminationGracePeriodSeconds": 0},
         [*(f"#.{name}: Invalid value: -1: must be greater than or equal to 0" for name in
            ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "failureThreshold")),
          "#.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0"]),
        ({**EXEC, "successThreshold": 2}, ["#.successThreshold: Invalid value: 2: must be 1"]),
    ],
)  # fmt: skip
def test_a_probe_has_one_handler_and_times_that_can_be(world, probe, found):
    for kind in ("livenessProbe", "startupProbe"):
        assert said(world, [each.replace("#", f"#.{kind}") for each in found], {kind: probe})


def test_only_readiness_may_need_several_successes_and_never_ends_a_container(world):
    assert said(world, [], {"readinessProbe": {**EXEC, "successThreshold": 2}})
    assert said(
        world,
        ["#.readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set for readinessProbes"],
        {"readinessProbe": {**EXEC, "terminationGracePeriodSeconds": 5}},
    )


@pytest.mark.parametrize(
    ("lifecycle", "spec", "found"),
    [
        ({"preStop": {"sleep": {"seconds": 0}}, "postStart": EXEC}, {}, []),
        ({"preStop": {}}, {}, [".preStop: Required value: must specify a handler type"]),
        ({"postStart": {"exec": {}}}, {}, [".postStart.exec.command: Required value"]),
        ({"preStop": {"sleep": {"seconds": -1}}}, {},
         [".preStop.sleep: Invalid value: -1: must be non-negative and less than terminationGracePeriodSeconds (30)"]),
        ({"preStop": {"sleep": {"seconds": 6}}}, {"terminationGracePeriodSeconds": 5},
         [".preStop.sleep: Invalid value: 6: must be non-negative and less than terminationGracePeriodSeconds (5)"]),
        ({"preStop": {**EXEC, "sleep": {"seconds": 1}}}, {},
         [".preStop.sleep: Forbidden: may not specify more than 1 handler type"]),
        ({"stopSignal": "SIGUSR1"}, {}, []),
        ({"stopSignal": "SIGUSR1"}, {"os": {"name": "windows"}}, []),
    ],
)  # fmt: skip
def test_a_hook_has_one_handler(world, lifecycle, spec, found):
    assert said(world, [f"#.lifecycle{each}" for each in found], {"lifecycle": lifecycle}, **spec)


HOOKS = {"lifecycle": {"preStop": EXEC}, "livenessProbe": EXEC, "readinessProbe": EXEC, "startupProbe": {}}


def test_init_containers_have_hooks_and_probes_only_as_sidecars(world):
    text = "Forbidden: may not be set for init containers without restartPolicy=Always"

    assert wrong(world, pod(initContainers=[{**container(name="i"), **HOOKS}])) == [
        f"spec.initContainers[0].{name}: {text}" for name in HOOKS
    ]
    assert wrong(world, pod(initContainers=[{**container(name="i"), **HOOKS, "restartPolicy": "Always"}])) == [
        "spec.initContainers[0].startupProbe: Required value: must specify a handler type"
    ]


def test_names_are_there_once_among_containers_and_init_containers(world):
    spec = {
        "containers": [container(), container()],
        "initContainers": [container(), container(name="i"), container(name="i")],
    }

    assert wrong(world, pod(**spec)) == [
        'spec.containers[1].name: Duplicate value: "c"',
        'spec.initContainers[0].name: Duplicate value: "c"',
        'spec.initContainers[2].name: Duplicate value: "i"',
    ]


RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"restartPolicy": "Always", "restartPolicyRules": [RULE]},
         [".restartPolicyRules: Forbidden: restartPolicyRules are not allowed for init containers with restart policy Always"]),
        ({"restartPolicyRules": [{}]}, [".restartPolicy: Required value: must specify restartPolicy when restart rules are used"]),
        ({"restartPolicy": "zz"},
         ['.restartPolicy: Unsupported value: "zz": supported values: "Always", "Never", "OnFailure"']),
        ({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]},
         [('.resizePolicy[0].restartPolicy: Invalid value: "RestartContainer": must not be set to \'RestartContainer\' for '
          "non-sidecar initContainers")]),
    ],
)  # fmt: skip
def test_an_init_containers_own_policy(world, more, found):
    assert wrong(world, pod(initContainers=[{**container(name="i"), **more}])) == [
        f"spec.initContainers[0]{each}" for each in found
    ]


@pytest.mark.parametrize(
    ("resources", "found"),
    [
        ({"limits": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}, "requests": {"cpu": "0.5"}}, []),
        ({"requests": {"kubernetes.io/x": "1"}}, []),
        ({"requests": {"storage": "1"}}, ['#.requests[storage]: Invalid value: "storage": must be a standard resource for containers']),
        ({"requests": {"a b": "1"}},
         [f'#.requests[a b]: Invalid value: "a b": {NAME_PART}',
          '#.requests[a b]: Invalid value: "a b": must be a standard resource for containers']),
        ({"limits": {"requests.example.com/x": "1"}},
         [("#.limits[requests.example.com/x]: Invalid value: \"requests.example.com/x\": doesn't follow extended resource name "
          "standard"),
          ("#.requests[requests.example.com/x]: Invalid value: \"requests.example.com/x\": doesn't follow extended resource name "
          "standard")]),
        ({"limits": {"cpu": "-1"}, "requests": {"cpu": "0"}},
         ['#.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0',
          '#.requests: Invalid value: "0": must be less than or equal to cpu limit of -1']),
        ({"limits": {"cpu": "0.5"}, "requests": {"cpu": "1000m"}},
         ['#.requests: Invalid value: "1": must be less than or equal to cpu limit of 500m']),
        ({"limits": {"example.com/x": "2"}, "requests": {"example.com/x": "1"}},
         ['#.requests: Invalid value: "1": must be equal to example.com/x limit of 2']),
        ({"requests": {"example.com/x": "1"}},
         ["#.limits: Required value: Limit must be set for non overcommitable resources"]),
        ({"limits": {"hugepages-2Mi": "2Mi"}}, ["#: Forbidden: HugePages require cpu or memory"]),
    ],
)  # fmt: skip
def test_requests_stay_below_limits(world, resources, found):
    assert said(world, [each.replace("#", "#.resources") for each in found], {"resources": resources})


def test_the_pods_own_resources_are_those_it_can_have(world):
    level = {"limits": {"cpu": "1", "hugepages-2Mi": "2Mi"}, "requests": {"cpu": "1", "ephemeral-storage": "1Gi"}}
    asking = container(resources={"limits": {"cpu": "2"}, "requests": {"cpu": "2"}})

    assert wrong(world, pod(resources=level, containers=[asking])) == [
        (
            'spec.resources.requests[ephemeral-storage]: Unsupported value: "ephemeral-storage": supported values: "cpu", '
            '"hugepages-", "memory"'
        ),
        'spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 2',
        'spec.resources.containers[0][cpu].limits: Invalid value: "2": must be less than or equal to pod limits of 1',
    ]
    assert wrong(world, pod(resources=level, os={"name": "windows"})) == [
        "spec.resources: Forbidden: may not be set for a windows pod"
    ]
