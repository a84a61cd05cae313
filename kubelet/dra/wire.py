"""Codec of the messages of DRA drivers, of their registration and their health. No other module knows them.

Source: dra-core 7.1; upstream `staging/src/k8s.io/kubelet/pkg/apis/dra/v1`,
`staging/src/k8s.io/kubelet/pkg/apis/pluginregistration/v1`,
`staging/src/k8s.io/kubelet/pkg/apis/dra-health/v1alpha1`.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from kubelet.dra.calls import HEALTHY, UNHEALTHY, UNKNOWN, ClaimName, ClaimResult, DeviceHealth, PluginInfo, Registered
from kubelet.runtime.claims import PreparedDevice
from protos.dra.v1 import api_pb2 as dra
from protos.drahealth.v1alpha1 import api_pb2 as health
from protos.pluginregistration.v1 import api_pb2 as registration
from services.api.local_rpc import RpcError

M = TypeVar("M", bound=Message)

GET_INFO: Final = "/pluginregistration.Registration/GetInfo"
NOTIFY: Final = "/pluginregistration.Registration/NotifyRegistrationStatus"
WATCH_HEALTH: Final = "/v1alpha1.DRAResourceHealth/NodeWatchResources"
PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"
EMPTY: Final = b""
"""The encoding of messages without a field."""
_STATES: Final = {UNKNOWN: health.UNKNOWN, HEALTHY: health.HEALTHY, UNHEALTHY: health.UNHEALTHY}
_HEALTH: Final = {number: name for name, number in _STATES.items()}


def method(service: str, call: str) -> str:
    """Return the full name of a method.

    `service`: such as `v1.DRAPlugin`, as drivers offer it; `call`: the method of the service.
    """
    version, _, name = service.partition(".")
    return f"/k8s.io.kubelet.pkg.apis.dra.{version}.{name}/{call}"


def _read(form: type[M], data: bytes) -> M:
    """Return the message. Raises: RpcError, as Go says it."""
    try:
        return form.FromString(data)
    except DecodeError:
        why = "proto: cannot parse invalid wire-format data"
        raise RpcError("Internal", f"grpc: failed to unmarshal the received message: {why}") from None


def encode_info(info: PluginInfo) -> bytes:
    """Return PluginInfo."""
    return registration.PluginInfo(
        type=info.type, name=info.name, endpoint=info.endpoint, supported_versions=info.versions
    ).SerializeToString()


def decode_info(data: bytes) -> PluginInfo:
    """Return the plugin's identity in an answer to GetInfo. Raises: RpcError."""
    message = _read(registration.PluginInfo, data)
    return PluginInfo(message.type, message.name, message.endpoint, tuple(message.supported_versions))


def encode_status(status: Registered) -> bytes:
    """Return RegistrationStatus."""
    return registration.RegistrationStatus(
        plugin_registered=status.is_registered, error=status.error
    ).SerializeToString()


def decode_status(data: bytes) -> Registered:
    """Return the kubelet's answer to a registration. Raises: RpcError."""
    message = _read(registration.RegistrationStatus, data)
    return Registered(message.plugin_registered, message.error)


def encode_claims(claims: Iterable[ClaimName]) -> bytes:
    """Return the request of a prepare or an unprepare: both have the same form."""
    message = dra.NodePrepareResourcesRequest()
    for claim in claims:
        message.claims.add(namespace=claim.namespace, uid=claim.uid, name=claim.name)
    return message.SerializeToString()


def decode_claims(data: bytes) -> tuple[ClaimName, ...]:
    """Return the claims of a request. Raises: RpcError."""
    message = _read(dra.NodePrepareResourcesRequest, data)
    return tuple(ClaimName(each.namespace, each.uid, each.name) for each in message.claims)


def encode_prepared(results: Mapping[str, ClaimResult]) -> bytes:
    """Return NodePrepareResourcesResponse."""
    message = dra.NodePrepareResourcesResponse()
    for uid, result in results.items():
        entry = message.claims[uid]
        entry.error = result.error
        for device in result.devices:
            added = entry.devices.add(
                request_names=device.requests,
                pool_name=device.pool,
                device_name=device.device,
                cdi_device_ids=device.cdi,
            )
            if device.share_id:
                added.share_id = device.share_id
    return message.SerializeToString()


def decode_prepared(data: bytes, driver: str) -> dict[str, ClaimResult]:
    """Return the results of the driver of that name, by claim, in the order of their uids. Raises: RpcError."""
    message = _read(dra.NodePrepareResourcesResponse, data)
    results: dict[str, ClaimResult] = {}
    for uid in sorted(message.claims):
        entry = message.claims[uid]
        devices = tuple(
            PreparedDevice(
                driver,
                each.pool_name,
                each.device_name,
                tuple(each.request_names),
                tuple(each.cdi_device_ids),
                each.share_id,
            )
            for each in entry.devices
        )
        results[uid] = ClaimResult(devices, entry.error)
    return results


def encode_unprepared(results: Mapping[str, ClaimResult]) -> bytes:
    """Return NodeUnprepareResourcesResponse."""
    message = dra.NodeUnprepareResourcesResponse()
    for uid, result in results.items():
        message.claims[uid].error = result.error
    return message.SerializeToString()


def decode_unprepared(data: bytes) -> dict[str, ClaimResult]:
    """Return the result of each claim, in the order of their uids. Raises: RpcError."""
    message = _read(dra.NodeUnprepareResourcesResponse, data)
    return {uid: ClaimResult(error=message.claims[uid].error) for uid in sorted(message.claims)}


def encode_health(devices: Iterable[DeviceHealth], wall_s: float) -> bytes:
    """Return NodeWatchResourcesResponse: the devices' health. `wall_s`: seconds since 1970."""
    message = health.NodeWatchResourcesResponse()
    for device in devices:
        message.devices.add(
            device=health.DeviceIdentifier(pool_name=device.pool, device_name=device.device),
            health=_STATES[device.health],
            last_updated_time=int(wall_s),
            health_check_timeout_seconds=int(device.timeout_s),
            message=device.message,
        )
    return message.SerializeToString()


def decode_health(data: bytes) -> tuple[DeviceHealth, ...]:
    """Return the health of the devices; an unknown state becomes Unknown. Raises: RpcError."""
    message = _read(health.NodeWatchResourcesResponse, data)
    return tuple(
        DeviceHealth(
            each.device.pool_name,
            each.device.device_name,
            _HEALTH.get(each.health, UNKNOWN),
            float(each.health_check_timeout_seconds),
            each.message,
        )
        for each in message.devices
    )
