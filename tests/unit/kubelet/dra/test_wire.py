"""The messages of DRA drivers: what goes out comes in, and nonsense is an error as Go says it (dra-core 7.1)."""

import pytest

from kubelet.dra import wire
from kubelet.dra.calls import ClaimName, ClaimResult, DeviceHealth, PluginInfo, Registered
from kubelet.runtime.claims import PreparedDevice
from services.api.local_rpc import RpcError

DEVICE = PreparedDevice("gpu.example.com", "n1", "gpu-0", ("r",), ("gpu.example.com/device=gpu-0",), "share")


def test_every_message_comes_in_as_it_went_out():
    info = PluginInfo("DRAPlugin", "gpu.example.com", "/x.sock", ("v1.DRAPlugin",))
    results = {"u1": ClaimResult((DEVICE,)), "u2": ClaimResult(error="no")}
    claims = (ClaimName("default", "u1", "c"),)
    health = (DeviceHealth("n1", "gpu-0", "Unhealthy", 20.0, "hot"),)

    assert wire.decode_info(wire.encode_info(info)) == info
    assert wire.decode_status(wire.encode_status(Registered(False, "why"))) == Registered(False, "why")
    assert wire.decode_claims(wire.encode_claims(claims)) == claims
    assert wire.decode_prepared(wire.encode_prepared(results), "gpu.example.com") == results
    assert wire.decode_unprepared(wire.encode_unprepared({"u2": ClaimResult(error="no")})) == {"u2": results["u2"]}
    assert wire.decode_health(wire.encode_health(health, 1.0)) == health


def test_methods_have_upstreams_full_names():
    assert wire.method("v1.DRAPlugin", wire.PREPARE) == (
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
    )
    assert wire.method("v1beta1.DRAPlugin", wire.UNPREPARE) == (
        "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources"
    )


@pytest.mark.parametrize("read", [wire.decode_info, wire.decode_claims, wire.decode_unprepared, wire.decode_health])
def test_what_is_no_message_is_an_error_of_the_call(read):
    with pytest.raises(RpcError, match="failed to unmarshal the received message"):
        read(b"\xff\xff\xff")
