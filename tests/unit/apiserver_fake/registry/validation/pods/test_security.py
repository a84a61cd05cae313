"""Security contexts, system parameters, shared namespaces and operating systems; the texts are upstream's."""

from __future__ import annotations

import pytest

from tests.unit.apiserver_fake.registry.validation.pods.rules import C0, container, pod, wrong

IDS = "must be between 0 and 2147483647, inclusive"
TYPES = '"Localhost", "RuntimeDefault", "Unconfined"'
SYSCTL = (
    "must have at most 253 characters and match regex "
    r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
)
POD, OWN = "spec.securityContext", f"{C0}.securityContext"


@pytest.mark.parametrize(
    ("context", "found"),
    [
        ({"fsGroup": 0, "runAsUser": 2147483647, "sysctls": [{"name": "kernel.msgmax", "value": "1"}]}, []),
        ({"runAsUser": -1, "fsGroup": 1 << 31, "supplementalGroups": [1, -2], "runAsGroup": -3},
         [f"#.fsGroup: Invalid value: 2147483648: {IDS}", f"#.runAsUser: Invalid value: -1: {IDS}",
          f"#.runAsGroup: Invalid value: -3: {IDS}", f"#.supplementalGroups[1]: Invalid value: -2: {IDS}"]),
        ({"sysctls": [{"name": "", "value": "1"}, {"name": "A", "value": "1"}, {"name": "a.b"}, {"name": "a.b"}]},
         ["#.sysctls[0].name: Required value", f'#.sysctls[1].name: Invalid value: "A": {SYSCTL}',
          '#.sysctls[3].name: Duplicate value: "a.b"']),
        ({"fsGroupChangePolicy": "zz", "supplementalGroupsPolicy": "zz", "seLinuxChangePolicy": "zz"},
         ['#.fsGroupChangePolicy: Unsupported value: "zz": supported values: "Always", "OnRootMismatch"',
          '#.supplementalGroupsPolicy: Unsupported value: "zz": supported values: "Merge", "Strict"',
          '#.seLinuxChangePolicy: Unsupported value: "zz": supported values: "MountOption", "Recursive"']),
        ({"seccompProfile": {}}, ["#.seccompProfile.type: Required value: type is required when seccompProfile is set"]),
        ({"seccompProfile": {"type": "zz"}},
         [f'#.seccompProfile.type: Unsupported value: "zz": supported values: {TYPES}']),
        ({"seccompProfile": {"type": "Localhost"}},
         ["#.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost"]),
        ({"seccompProfile": {"type": "Localhost", "localhostProfile": "../a"}},
         ['#.seccompProfile.localhostProfile: Invalid value: "../a": must not contain \'..\'']),
        ({"seccompProfile": {"type": "Localhost", "localhostProfile": "/a"}},
         ['#.seccompProfile.localhostProfile: Invalid value: "/a": must be a relative path']),
        ({"seccompProfile": {"type": "RuntimeDefault", "localhostProfile": "a"}},
         [('#.seccompProfile.localhostProfile: Invalid value: {"Type":"RuntimeDefault","LocalhostProfile":"a"}: '
          "can only be set when seccomp type is Localhost")]),
        ({"appArmorProfile": {}}, ["#.appArmorProfile.type: Required value: type is required when appArmorProfile is set"]),
        ({"appArmorProfile": {"type": "Unconfined", "localhostProfile": "a"}},
         ['#.appArmorProfile.localhostProfile: Invalid value: "a": can only be set when AppArmor type is Localhost']),
        ({"appArmorProfile": {"type": "Localhost", "localhostProfile": " a"}},
         ['#.appArmorProfile.localhostProfile: Invalid value: " a": must not be padded with whitespace']),
        ({"appArmorProfile": {"type": "Localhost", "localhostProfile": "a" * 4096}},
         ["#.appArmorProfile.localhostProfile: Too long: may not be more than 4095 bytes"]),
    ],
)  # fmt: skip
def test_a_pod_runs_as_its_security_context_says(world, context, found):
    assert wrong(world, pod(securityContext=context)) == [each.replace("#", POD) for each in found]


@pytest.mark.parametrize(
    ("context", "found"),
    [
        ({"runAsUser": 1, "privileged": True, "procMount": "Default", "capabilities": {"add": ["CAP_SYS_ADMIN"]}}, []),
        ({"runAsGroup": -1}, [f".runAsGroup: Invalid value: -1: {IDS}"]),
        ({"procMount": "zz"}, ['.procMount: Unsupported value: "zz": supported values: "Default", "Unmasked"']),
        ({"procMount": "Unmasked"},
         ['.procMount: Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`']),
        ({"allowPrivilegeEscalation": False, "privileged": True},
         [(': Invalid value: {"Capabilities":null,"Privileged":true,"SELinuxOptions":null,"WindowsOptions":null,'
          '"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,"ReadOnlyRootFilesystem":null,'
          '"AllowPrivilegeEscalation":false,"ProcMount":null,"SeccompProfile":null,"AppArmorProfile":null}: '
          "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")]),
        ({"windowsOptions": {"runAsUserName": ""}},
         ['.windowsOptions.runAsUserName: Invalid value: "": runAsUserName cannot be an empty string']),
        ({"windowsOptions": {"runAsUserName": "a\\b\\c"}},
         [('.windowsOptions.runAsUserName: Invalid value: "a\\\\b\\\\c": '
          "runAsUserName cannot contain more than one backslash")]),
        ({"windowsOptions": {"runAsUserName": "a\tb"}},
         ['.windowsOptions.runAsUserName: Invalid value: "a\\tb": runAsUserName cannot contain control characters']),
        ({"windowsOptions": {"runAsUserName": "a\\"}},
         ['.windowsOptions.runAsUserName: Invalid value: "a\\\\": runAsUserName\'s User cannot be empty']),
        ({"windowsOptions": {"runAsUserName": "..."}},
         [('.windowsOptions.runAsUserName: Invalid value: "...": '
          "runAsUserName's User cannot contain only periods or spaces")]),
        ({"windowsOptions": {"runAsUserName": "-\\u"}}, []),
        ({"windowsOptions": {"runAsUserName": "a b\\u"}}, []),
        ({"windowsOptions": {"runAsUserName": "*\\u"}},
         [('.windowsOptions.runAsUserName: Invalid value: "*\\\\u": '
          "runAsUserName's Domain doesn't match the NetBios nor the DNS format")]),
        ({"windowsOptions": {"gmsaCredentialSpec": ""}},
         ['.windowsOptions.gmsaCredentialSpec: Invalid value: "": gmsaCredentialSpec cannot be an empty string']),
    ],
)  # fmt: skip
def test_a_container_runs_as_its_own_security_context_says(world, context, found):
    said = wrong(world, pod(containers=[container(securityContext=context)]))
    assert said == [f"{OWN}{each}" for each in found]


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"hostNetwork": True, "securityContext": {"sysctls": [{"name": "net.a", "value": "1"}, {"name": "kernel.sem"}]}},
         [f'{POD}.sysctls[0].name: Invalid value: "net.a": may not be specified when \'hostNetwork\' is true']),
        ({"hostIPC": True, "securityContext": {"sysctls": [{"name": "fs/mqueue/a", "value": "1"}, {"name": "net/a.b"}]}},
         [f'{POD}.sysctls[0].name: Invalid value: "fs/mqueue/a": may not be specified when \'hostIPC\' is true']),
        ({"hostPID": True, "shareProcessNamespace": True},
         [f"{POD}.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled"]),
        ({"hostUsers": False, "hostNetwork": True, "hostPID": True, "hostIPC": True},
         ["spec.hostNetwork: Forbidden: when `hostUsers` is false", "spec.HostPID: Forbidden: when `hostUsers` is false",
          "spec.HostIPC: Forbidden: when `hostUsers` is false"]),
        ({"hostUsers": False, "containers": [container(securityContext={"procMount": "Unmasked"})]}, []),
        ({"securityContext": {"windowsOptions": {"hostProcess": True}}},
         [("spec.hostNetwork: Invalid value: false: "
          "hostNetwork must be true if pod contains any hostProcess containers")]),
        ({"hostNetwork": True, "containers": [container(securityContext={"windowsOptions": {"hostProcess": True}}),
                                              container(name="d")]},
         [('spec: Invalid value: "": If pod contains any hostProcess containers then all containers must be '
          "HostProcess containers")]),
        ({"hostNetwork": True, "securityContext": {"windowsOptions": {"hostProcess": True}},
          "containers": [container(securityContext={"windowsOptions": {"hostProcess": False}})]},
         [(f"{OWN}.windowsOptions.hostProcess: Invalid value: false: "
          "pod hostProcess value must be identical if both are specified, was true")]),
        ({"os": {"name": ""}}, ["spec.os.name: Required value"]),
        ({"os": {"name": "solaris"}}, ['spec.os: Unsupported value: "solaris": supported values: "linux", "windows"']),
        ({"os": {"name": "linux"}, "securityContext": {"runAsUser": 1, "windowsOptions": {}},
          "containers": [container(securityContext={"windowsOptions": {}})]},
         [f"{POD}.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
          f"{OWN}.windowsOptions: Forbidden: windows options cannot be set for a linux pod"]),
        ({"os": {"name": "windows"}, "hostPID": True, "hostIPC": False, "shareProcessNamespace": False,
          "securityContext": {"runAsUser": 1, "sysctls": [], "fsGroup": 1},
          "containers": [container(securityContext={"privileged": False, "runAsNonRoot": True, "runAsGroup": 1})]},
         [f"{POD}.fsGroup: Forbidden: cannot be set for a windows pod",
          f"{POD}.runAsUser: Forbidden: cannot be set for a windows pod",
          "spec.hostPID: Forbidden: cannot be set for a windows pod",
          "spec.shareProcessNamespace: Forbidden: cannot be set for a windows pod",
          f"{OWN}.privileged: Forbidden: cannot be set for a windows pod",
          f"{OWN}.runAsGroup: Forbidden: cannot be set for a windows pod"]),
    ],
)  # fmt: skip
def test_what_a_pod_shares_with_its_host(world, spec, found):
    assert wrong(world, pod(**spec)) == found
