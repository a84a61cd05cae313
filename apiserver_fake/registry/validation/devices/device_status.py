"""Validation of `status.devices`: the status of allocated devices, as drivers report it (KEP-4817).

An entry is for one device of the allocation, or one share of it. The texts are upstream's
(`pkg/apis/resource/validation`, v1.36). Source: dra-core 1.3.
"""

from ipaddress import ip_interface

from apiserver_fake.registry.validation.conditions import CONDITION
from apiserver_fake.registry.validation.devices.names import (
    OPAQUE_BYTES_MAX,
    driver_name,
    json_object,
    no_two,
    pool_name,
    uid,
)
from apiserver_fake.registry.validation.devices.taints import CONDITIONS_MAX
from apiserver_fake.registry.validation.fields import Check, Field, Report, Struct, not_repeated
from apiserver_fake.registry.validation.formats import Causes, invalid, label, too_long
from services.api.meta import Document

INTERFACE_NAME_MAX, HARDWARE_ADDRESS_MAX, ADDRESSES_MAX = 256, 128, 16
NOT_ALLOCATED = "must be an allocated device in the claim"
NOT_CIDR = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"

DeviceKey = tuple[str, str, str, str]
"""Driver, pool, device, and share id ("" if the device is not shared)."""


def key_of(entry: Document) -> DeviceKey:
    """Return the device key of an allocation result, or of an entry of `status.devices`."""
    driver, pool, device, share = (entry.get(name) or "" for name in ("driver", "pool", "device", "shareID"))
    return driver, pool, device, share


def _is_allocated(entry: Document, at: str, report: Report) -> Causes:
    if (key := key_of(entry)) not in report.scope:
        yield invalid(at[:-1], "/".join(filter(None, key)), NOT_ALLOCATED)


def _no_longer(maximum: int) -> Check:
    return lambda value, path, report: (too_long(path, maximum),) if len(value.encode()) > maximum else ()


def _address(value: str, path: str, report: Report) -> Causes:
    try:
        interface = ip_interface(value)
    except ValueError:
        interface = None
    if interface is None or "/" not in value or "%" in value:
        yield invalid(path, value, NOT_CIDR)
    elif str(interface) != value:
        yield invalid(path, value, f'must be in canonical form ("{interface}")')
    yield from not_repeated(value, path, report)


DEVICE_STATUS = Struct(
    Field("driver", missing="", form=driver_name),
    Field("pool", missing="", form=pool_name),
    Field("device", missing="", form=label),
    Field("shareID", rule=lambda value, path, report: uid(path, value)),
    _is_allocated,
    no_two("driver", "pool", "device", "shareID"),
    Field("conditions", most=CONDITIONS_MAX, items=CONDITION),
    Field("data", rule=json_object(OPAQUE_BYTES_MAX)),
    Field(
        "networkData",
        struct=Struct(
            Field("interfaceName", rule=_no_longer(INTERFACE_NAME_MAX)),
            Field("hardwareAddress", rule=_no_longer(HARDWARE_ADDRESS_MAX)),
            Field("ips", most=ADDRESSES_MAX, items=Field(rule=_address)),
        ),
    ),
)
"""Field table of an entry of `status.devices`. The report's scope must hold the keys of the allocated devices."""
