"""ValidatingWebhookConfiguration: webhooks that accept or reject objects (admissionregistration.k8s.io/v1)."""

from services.api.meta import AGE, NAME, Column, ObjectView, Resource


class ValidatingWebhookConfiguration(ObjectView, frozen=True):
    """A configuration as components see it."""


RESOURCE = Resource(
    ValidatingWebhookConfiguration,
    group="admissionregistration.k8s.io",
    namespaced=False,
    categories=("api-extensions",),
    columns=(NAME, Column("Webhooks", lambda document, now: len(document.get("webhooks") or ()), type="integer"), AGE),
)
