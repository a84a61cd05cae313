"""Codec of the messages of the device plugin API v1beta1. No other module knows them.

Unknown fields are skipped; a health other than Healthy is unhealthy, as Kubernetes takes it. Source:
kubelet 5.5; upstream `staging/src/k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1`.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from kubelet.managers.device_calls import (
    Allocate,
    AllocateResult,
    Call,
    Device,
    DeviceNode,
    Mount,
    Options,
    Preference,
    PreStart,
    Registration,
)
from protos.deviceplugin.v1beta1 import api_pb2 as api
from services.api.local_rpc import RpcError

M = TypeVar("M", bound=Message)

REGISTER = "/v1beta1.Registration/Register"
GET_OPTIONS = "/v1beta1.DevicePlugin/GetDevicePluginOptions"
LIST_AND_WATCH = "/v1beta1.DevicePlugin/ListAndWatch"
PREFERENCE = "/v1beta1.DevicePlugin/GetPreferredAllocation"
ALLOCATE = "/v1beta1.DevicePlugin/Allocate"
PRE_START = "/v1beta1.DevicePlugin/PreStartContainer"

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
EMPTY: bytes = api.Empty().SerializeToString()


def _read(form: type[M], data: bytes) -> M:
    """Return the message. Raises: RpcError, as Go says it."""
    try:
        return form.FromString(data)
    except DecodeError as error:
        raise RpcError("Internal", f"failed to unmarshal the received message: {error}") from None


def encode_registration(asked: Registration) -> bytes:
    """Return a RegisterRequest."""
    return api.RegisterRequest(
        version=asked.version, endpoint=asked.endpoint, resource_name=asked.resource, options=_options(asked.options)
    ).SerializeToString()


def decode_registration(data: bytes) -> Registration:
    """Return the registration in a RegisterRequest. Raises: RpcError."""
    message = _read(api.RegisterRequest, data)
    return Registration(message.version, message.endpoint, message.resource_name, _options_of(message.options))


def _options(options: Options) -> api.DevicePluginOptions:
    return api.DevicePluginOptions(
        pre_start_required=options.pre_start, get_preferred_allocation_available=options.prefers
    )


def _options_of(message: api.DevicePluginOptions) -> Options:
    return Options(message.pre_start_required, message.get_preferred_allocation_available)


def encode_options(options: Options) -> bytes:
    """Return DevicePluginOptions."""
    return _options(options).SerializeToString()


def decode_options(data: bytes) -> Options:
    """Return the options of DevicePluginOptions. Raises: RpcError."""
    return _options_of(_read(api.DevicePluginOptions, data))


def encode_devices(devices: Iterable[Device]) -> bytes:
    """Return a ListAndWatchResponse."""
    message = api.ListAndWatchResponse()
    for device in devices:
        added = message.devices.add(ID=device.id, health=HEALTHY if device.is_healthy else UNHEALTHY)
        for numa in device.numa:
            added.topology.nodes.add(ID=numa)
    return message.SerializeToString()


def decode_devices(data: bytes) -> tuple[Device, ...]:
    """Return the devices of a ListAndWatchResponse. Raises: RpcError."""
    message = _read(api.ListAndWatchResponse, data)
    return tuple(
        Device(each.ID, each.health == HEALTHY, tuple(int(node.ID) for node in each.topology.nodes))
        for each in message.devices
    )


def encode_call(call: Call) -> tuple[str, bytes]:
    """Return the method to call and its request."""
    match call:
        case Preference():
            asked = api.PreferredAllocationRequest()
            asked.container_requests.add(
                available_deviceIDs=call.available, must_include_deviceIDs=call.must, allocation_size=call.size
            )
            return PREFERENCE, asked.SerializeToString()
        case Allocate():
            wanted = api.AllocateRequest()
            wanted.container_requests.add(devices_ids=call.ids)
            return ALLOCATE, wanted.SerializeToString()
        case PreStart():
            return PRE_START, api.PreStartContainerRequest(devices_ids=call.ids).SerializeToString()


def decode_preference(data: bytes) -> tuple[str, ...]:
    """Return the ids of a PreferredAllocationResponse; empty when it holds no answer. Raises: RpcError."""
    message = _read(api.PreferredAllocationResponse, data)
    return tuple(message.container_responses[0].deviceIDs) if message.container_responses else ()


def decode_given(data: bytes) -> AllocateResult | None:
    """Return the result in an AllocateResponse; None when it holds no container. Raises: RpcError."""
    message = _read(api.AllocateResponse, data)
    if not message.container_responses:
        return None
    first = message.container_responses[0]
    return AllocateResult(
        envs={name: first.envs[name] for name in sorted(first.envs)},
        annotations={name: first.annotations[name] for name in sorted(first.annotations)},
        mounts=tuple(Mount(m.container_path, m.host_path, m.read_only) for m in first.mounts),
        nodes=tuple(DeviceNode(d.container_path, d.host_path, d.permissions) for d in first.devices),
        cdi=tuple(c.name for c in first.cdi_devices),
    )


def decode_preferences(data: bytes) -> list[tuple[tuple[str, ...], tuple[str, ...], int]]:
    """Return (available, must include, size) for each container of a request. Raises: RpcError."""
    return [
        (tuple(each.available_deviceIDs), tuple(each.must_include_deviceIDs), each.allocation_size)
        for each in _read(api.PreferredAllocationRequest, data).container_requests
    ]


def encode_preferences(answers: Sequence[Sequence[str]]) -> bytes:
    """Return a PreferredAllocationResponse, the ids of one container each."""
    responses = [api.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in answers]
    return api.PreferredAllocationResponse(container_responses=responses).SerializeToString()


def decode_allocate(data: bytes) -> list[tuple[str, ...]]:
    """Return the ids of each container of an AllocateRequest. Raises: RpcError."""
    return [tuple(each.devices_ids) for each in _read(api.AllocateRequest, data).container_requests]


def encode_given(answers: Sequence[AllocateResult]) -> bytes:
    """Return an AllocateResponse, one answer for each container."""
    message = api.AllocateResponse()
    for given in answers:
        added = message.container_responses.add(envs=given.envs, annotations=given.annotations)
        for mount in given.mounts:
            added.mounts.add(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
        for node in given.nodes:
            added.devices.add(
                container_path=node.container_path, host_path=node.host_path, permissions=node.permissions
            )
        for name in given.cdi:
            added.cdi_devices.add(name=name)
    return message.SerializeToString()


def decode_pre_start(data: bytes) -> tuple[str, ...]:
    """Return the ids of a PreStartContainerRequest. Raises: RpcError."""
    return tuple(_read(api.PreStartContainerRequest, data).devices_ids)
