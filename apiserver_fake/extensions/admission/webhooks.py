"""Admission webhooks as values: their configuration, the reviews sent, the meaning of answers, and recorded
answers.

Upstream's plugins MutatingAdmissionWebhook and ValidatingAdmissionWebhook.

A webhook is called before its write enters the commit, with the object as the write would leave it. The answers
are kept in the write's `sessions.Session`. In the commit they only count for exactly that object: if another
writer came in between, the webhooks are called again. Nothing here waits or calls.

Source: kubernetes/kubernetes staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/generic/webhook.go,
mutating/dispatcher.go, request/admissionreview.go, errors/statuserror.go.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from apiserver_fake.extensions.admission.expressions import Compiler, Condition, ExpressionError, are_met, conditions_of
from apiserver_fake.extensions.admission.matching import Match
from apiserver_fake.extensions.admission.policies import ConfigurationError, World
from apiserver_fake.registry.admission.attributes import Attributes, Key
from apiserver_fake.registry.errors import forbidden
from apiserver_fake.registry.patch.json_patch import json_patch
from apiserver_fake.registry.sessions import Unanswered
from services.api.errors import ApiError, BadRequest
from services.api.meta import Document, Resource

NO_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
_V1: Final = "admission.k8s.io/v1"


@dataclass(frozen=True)
class Webhook:
    """One configured webhook. `place`: its index in its configuration."""

    configuration: str
    place: int
    name: str
    match: Match
    conditions: tuple[Condition, ...]
    client: Document
    versions: tuple[str, ...]
    side_effects: str
    timeout_s: float
    ignores_errors: bool
    is_reinvoked: bool

    @property
    def key(self) -> Key:
        """The identity of the webhook, by which a reinvocation recognizes it."""
        return self.configuration, self.name, self.place

    def should_be_called(self, attributes: Attributes, world: World) -> Resource | None:
        """Return the version in which the request matches the webhook; None if it does not.

        Raises: Forbidden when a match condition fails and the webhook does not ignore failures.
        """
        matched = self.match.matches(attributes, world.versions(attributes.resource), world.around.labels)
        if matched is None or not self.conditions:
            return matched
        try:
            return matched if are_met(self.conditions, world.inputs(attributes, matched, None)) else None
        except (ConfigurationError, ExpressionError) as error:
            if self.ignores_errors:
                return None
            raise forbidden(attributes.resource.name, attributes.name, str(error)) from None


def webhooks_of(configuration: Document) -> tuple[Webhook, ...]:
    """Return the webhooks of a stored configuration, in its order."""
    name = configuration["metadata"]["name"]
    return tuple(_webhook(name, place, each) for place, each in enumerate(configuration.get("webhooks") or ()))


def _webhook(configuration: str, place: int, document: Document) -> Webhook:
    return Webhook(
        configuration=configuration,
        place=place,
        name=document["name"],
        match=Match.of(document, "rules"),
        conditions=conditions_of(document, Compiler(has_params=False)),
        client=document["clientConfig"],
        versions=tuple(document.get("admissionReviewVersions") or ()),
        side_effects=document.get("sideEffects") or "Unknown",
        timeout_s=float(document.get("timeoutSeconds") or 10),
        ignores_errors=document.get("failurePolicy") == "Ignore",
        is_reinvoked=document.get("reinvocationPolicy") == "IfNeeded",
    )


class CallError(Exception):
    """A webhook could not be called, or answered wrongly. Its failure policy decides the outcome. The text is
    upstream's.
    """


def failure(webhook: Webhook, error: CallError) -> ApiError:
    """Return the refusal of a request whose webhook failed with failurePolicy Fail."""
    text = f'failed calling webhook "{webhook.name}": {error}'
    return ApiError(f"Internal error occurred: {text}", details={"causes": [{"message": text}]})


def check_dry_run(webhook: Webhook, found: Attributes) -> None:
    """Check that the webhook may be called for this request. Raises: BadRequest for a dry run if it has side
    effects.
    """
    if found.request.dry_run and webhook.side_effects not in NO_SIDE_EFFECTS:
        raise BadRequest(f'admission webhook "{webhook.name}" does not support dry run')


def review(webhook: Webhook, attributes: Attributes, matched: Resource, world: World, uid: str) -> Document:
    """Return the AdmissionReview to send. Raises: CallError."""
    version = next((each for each in webhook.versions if each in ("v1", "v1beta1")), "")
    if not version:
        supported = " ".join(webhook.versions)
        why = f"webhook does not accept known AdmissionReview versions (v1, v1beta1), got [{supported}]"
        raise CallError(f"could not create admission objects: {why}")
    try:
        objects = [world.as_matched(attributes, each, matched) for each in (attributes.object, attributes.old)]
    except ConfigurationError as error:
        raise CallError(str(error)) from None
    request = {"uid": uid, **attributes.review(matched), "object": objects[0], "oldObject": objects[1]}
    if not attributes.subresource:
        del request["subResource"], request["requestSubResource"]
    for name in ("name", "namespace"):
        if not request[name]:
            del request[name]
    return {"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{version}", "request": request}


@dataclass(frozen=True)
class Reply:
    """A webhook's answer: whether it allows the request, its patch, its status, warnings and audit annotations."""

    is_allowed: bool
    status: Document
    patch: list[Any]
    warnings: tuple[str, ...]
    audit: Mapping[str, str]


def read(body: bytes, uid: str, version: str, *, is_mutating: bool) -> Reply:
    """Decode a webhook's answer. Raises: CallError naming the error."""
    try:
        document = json.loads(body) if body else None
    except (ValueError, RecursionError) as error:
        raise CallError(f"failed to call webhook: couldn't get version/kind; json parse error: {error}") from None
    if document is None:
        raise CallError("failed to call webhook: 0-length response with status code: 200 and content type: ")
    if not isinstance(document, dict):
        text = "json: cannot unmarshal into Go value of type struct { APIVersion string; Kind string }"
        raise CallError(f"failed to call webhook: couldn't get version/kind; json parse error: {text}")
    if not document.get("kind"):
        raise CallError(f"failed to call webhook: Object 'Kind' is missing in '{body.decode(errors='replace')[:1024]}'")
    response = document.get("response")
    problem = _problem(document, response, uid, version, is_mutating=is_mutating)
    if problem:
        raise CallError(f"received invalid webhook response: {problem}")
    try:
        answer = msgspec.convert(response, _Response)
    except msgspec.ValidationError as error:
        raise CallError(f"failed to call webhook: {error}") from None
    patch: list[Any] = []
    if is_mutating and answer.patch:
        patch = _decode_patch(answer.patch)
        # The type is not looked at in v1beta1.
        if patch and version == _V1 and answer.patch_type != "JSONPatch":
            raise CallError(f'unsupported patch type "{answer.patch_type}"')
    return Reply(answer.allowed, answer.status or {}, patch, answer.warnings or (), answer.audit_annotations or {})


class _Response(msgspec.Struct, rename="camel"):
    allowed: bool = False
    status: dict[str, Any] | None = None
    patch: str | None = None
    patch_type: str | None = None
    warnings: tuple[str, ...] | None = None
    audit_annotations: dict[str, str] | None = None


def _problem(document: Document, response: Any, uid: str, version: str, *, is_mutating: bool) -> str:
    """Return what is wrong with an answer as such; "" for nothing.

    Source: upstream `staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/request/admissionreview.go`.
    """
    if not isinstance(response, dict):
        return "webhook response was absent"
    if version != _V1:
        return ""
    if response.get("uid") != uid:
        return f'expected response.uid="{uid}", got {json.dumps(str(response.get("uid") or ""))}'
    got = (str(document.get("apiVersion") or ""), str(document["kind"]))
    if got != (_V1, "AdmissionReview"):
        group, _, version = got[0].rpartition("/")
        return f"expected webhook response of {_V1}, Kind=AdmissionReview, got {group}/{version}, Kind={got[1]}"
    patch, patch_type = response.get("patch"), response.get("patchType")
    if not is_mutating and patch:
        return "validating webhook may not return response.patch"
    if not is_mutating and patch_type is not None:
        return "validating webhook may not return response.patchType"
    if patch and patch_type is None:
        return "webhook returned response.patch but not response.patchType"
    if not patch and patch_type is not None:
        return "webhook returned response.patchType but not response.patch"
    return 'webhook returned invalid response.patchType of ""' if patch_type == "" else ""


def _decode_patch(patch: str) -> list[Any]:
    try:
        operations = json.loads(base64.b64decode(patch, validate=True))
        if not isinstance(operations, list):
            raise ValueError(
                f"json: cannot unmarshal {type(operations).__name__} into Go value of type jsonpatch.Patch"
            )
    except (ValueError, binascii.Error, RecursionError) as error:
        raise CallError(f"received undecodable patch in webhook response: {error}") from None
    return operations


STATUS_MAX = 999
"""The largest code that a status line can have."""


def rejection(webhook: Webhook, reply: Reply) -> ApiError:
    """Return the refusal of a request that a webhook denies: the webhook's own Status, always with status Failure."""
    status = reply.status
    head = f'admission webhook "{webhook.name}" denied the request'
    message = status.get("message") or status.get("reason")
    written = status.get("code")
    code = written if isinstance(written, int) else 0
    if code > STATUS_MAX:
        # Go's server panics over a code that has no three digits, and answers so.
        return ApiError("This request caused apiserver to panic. Look in the logs for details.")
    details = status.get("details")
    refused = ApiError(
        f"{head}: {message}" if message else f"{head} without explanation",
        code=max(code, 400),
        details=details if isinstance(details, dict) else None,
    )
    refused.reason = str(status.get("reason") or "")
    return refused


def patched_object(
    webhook: Webhook, reply: Reply, attributes: Attributes, matched: Resource, world: World
) -> Document | None:
    """Return the object after the webhook's patch, in its stored version. Raises: ApiError if the patch cannot
    be applied.
    """
    if not reply.patch:
        return attributes.object
    if attributes.object is None:
        text = (
            f'admission webhook "{webhook.name}" attempted to modify the object, which is not supported for this '
            "operation"
        )
        raise ApiError(f"Internal error occurred: {text}", details={"causes": [{"message": text}]})
    try:
        shown = world.as_matched(attributes, attributes.object, matched)
        document = json_patch(shown, reply.patch)
        if not isinstance(document, dict):
            raise BadRequest("the patch leaves no object")
        return world.as_stored(attributes, document, matched)
    except Unanswered:
        raise
    except (ApiError, ConfigurationError) as error:
        text = getattr(error, "message", str(error))
        raise ApiError(f"Internal error occurred: {text}", details={"causes": [{"message": text}]}) from None
