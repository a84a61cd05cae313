"""ServiceAccount (core/v1): the identity that pods run as; its subresource `token` issues tokens."""

from services.api.meta import AGE, NAME, ObjectView, Resource


class ServiceAccount(ObjectView, frozen=True):
    """A service account as components see it: metadata only."""


RESOURCE = Resource(ServiceAccount, short_names=("sa",), subresources=("token",), columns=(NAME, AGE))
