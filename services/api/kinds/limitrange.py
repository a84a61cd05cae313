"""LimitRange: how big or small single objects of a namespace may be, and what they get by default (core/v1)."""

from services.api.meta import ObjectView, Resource, View

CONTAINER, POD, CLAIM = "Container", "Pod", "PersistentVolumeClaim"


class LimitRangeItem(View, frozen=True):
    """The bounds of one type of object. `default`: limits given to containers without; `default_request`: requests."""

    type: str = ""
    max: dict[str, str] = {}
    min: dict[str, str] = {}
    default: dict[str, str] = {}
    default_request: dict[str, str] = {}
    max_limit_request_ratio: dict[str, str] = {}


class LimitRangeSpec(View, frozen=True):
    """One item a type."""

    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(ObjectView, frozen=True):
    """A limit range as components see it."""

    spec: LimitRangeSpec = LimitRangeSpec()


RESOURCE = Resource(LimitRange, short_names=("limits",))
