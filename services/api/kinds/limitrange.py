"""LimitRange: size bounds and defaults for single objects of a namespace (core/v1)."""

from services.api.meta import ObjectView, Resource, View

CONTAINER, POD, CLAIM = "Container", "Pod", "PersistentVolumeClaim"


class LimitRangeItem(View, frozen=True):
    """Bounds of one type of object. `default`: limits for containers that set none; `default_request`: requests
    likewise.
    """

    type: str = ""
    max: dict[str, str] = {}
    min: dict[str, str] = {}
    default: dict[str, str] = {}
    default_request: dict[str, str] = {}
    max_limit_request_ratio: dict[str, str] = {}


class LimitRangeSpec(View, frozen=True):
    """Spec of a limit range: one item per type."""

    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(ObjectView, frozen=True):
    """A limit range as components see it."""

    spec: LimitRangeSpec = LimitRangeSpec()


RESOURCE = Resource(LimitRange, short_names=("limits",))
