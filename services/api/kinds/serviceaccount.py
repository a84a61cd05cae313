"""ServiceAccount (core/v1): whom pods run as; `token` makes one of its tokens."""

from services.api.meta import AGE, NAME, ObjectView, Resource


class ServiceAccount(ObjectView, frozen=True):
    """A service account as components see it: that it is there."""


RESOURCE = Resource(ServiceAccount, short_names=("sa",), subresources=("token",), columns=(NAME, AGE))
