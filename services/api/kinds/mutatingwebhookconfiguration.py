"""MutatingWebhookConfiguration: webhooks that may change objects (admissionregistration.k8s.io/v1)."""

from services.api.meta import AGE, NAME, Column, ObjectView, Resource


class MutatingWebhookConfiguration(ObjectView, frozen=True):
    """A configuration as components see it."""


RESOURCE = Resource(
    MutatingWebhookConfiguration,
    group="admissionregistration.k8s.io",
    namespaced=False,
    categories=("api-extensions",),
    columns=(NAME, Column("Webhooks", lambda document, now: len(document.get("webhooks") or ()), type="integer"), AGE),
)
