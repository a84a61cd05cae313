"""Which kernel settings a pod may have (kubelet 5.2; upstream's allowlist)."""

import msgspec
import pytest

from kubelet.admission.features import forbidden_sysctl
from kubelet.view import KubeletPod


def pod(*names, **spec):
    sysctls = [{"name": name, "value": "1"} for name in names]
    return msgspec.convert({"spec": {"securityContext": {"sysctls": sysctls}, **spec}}, KubeletPod)


@pytest.mark.parametrize(
    ("given", "allowed", "message"),
    [
        (pod(), (), None),
        (pod("net.ipv4.tcp_syncookies", "kernel.shm_rmid_forced"), (), None),
        (pod("kernel.msgmax"), (), 'forbidden sysctl: "kernel.msgmax" not allowlisted'),
        (pod("kernel/msgmax"), ("kernel.msg*",), None),
        (pod("kernel.sem"), ("kernel.msg*",), 'forbidden sysctl: "kernel.sem" not allowlisted'),
        (pod("net.ipv4.tcp_syncookies", hostNetwork=True), (),
         'forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host net enabled'),
        (pod("kernel.shm_rmid_forced", hostIPC=True), (),
         'forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host ipc enabled'),
    ],
)  # fmt: skip
def test_a_pod_may_set_what_is_safe_or_allowed(given, allowed, message):
    refused = forbidden_sysctl(given, allowed)

    assert (refused and refused.message) == message
    assert refused is None or refused.reason == "SysctlForbidden"


def test_a_pod_without_security_context_is_not_asked():
    assert forbidden_sysctl(KubeletPod(), ()) is None
