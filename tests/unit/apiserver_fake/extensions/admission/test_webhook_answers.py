"""What a webhook may answer, and what is made of an answer that is none (upstream's `VerifyAdmissionResponse`)."""

import base64
import json
from types import SimpleNamespace

import pytest

from apiserver_fake.extensions.admission.webhooks import CallError, read, rejection

V1 = "admission.k8s.io/v1"
ADD = base64.b64encode(b'[{"op":"add","path":"/metadata/labels","value":{}}]').decode()
EMPTY = base64.b64encode(b"[]").decode()


def answer(version="v1", **response):
    said = {"uid": "u", "allowed": True, **response}
    return json.dumps(
        {"apiVersion": f"admission.k8s.io/{version}", "kind": "AdmissionReview", "response": said}
    ).encode()


@pytest.mark.parametrize(
    ("response", "is_mutating", "why"),
    [
        ({"patchType": "zz"}, True, "webhook returned response.patchType but not response.patch"),
        ({"patchType": "zz", "patch": ""}, True, "webhook returned response.patchType but not response.patch"),
        ({"patchType": "", "patch": ADD}, True, 'webhook returned invalid response.patchType of ""'),
        ({"patch": ADD}, True, "webhook returned response.patch but not response.patchType"),
        ({"patch": ADD, "patchType": "JSONPatch"}, False, "validating webhook may not return response.patch"),
        ({"patchType": "JSONPatch"}, False, "validating webhook may not return response.patchType"),
    ],
)
def test_a_patch_and_its_type_come_together_and_from_mutating_webhooks_alone(response, is_mutating, why):
    with pytest.raises(CallError, match=why):
        read(answer(**response), "u", V1, is_mutating=is_mutating)


def test_a_patch_of_another_type_is_not_supported():
    with pytest.raises(CallError, match='unsupported patch type "zz"'):
        read(answer(patch=ADD, patchType="zz"), "u", V1, is_mutating=True)


@pytest.mark.parametrize(
    "response", [{"patch": EMPTY, "patchType": "zz"}, {"patch": ADD, "patchType": "JSONPatch"}, {}]
)
def test_what_changes_nothing_and_what_is_a_json_patch_are_taken(response):
    assert read(answer(**response), "u", V1, is_mutating=True).is_allowed


def test_the_type_of_a_patch_is_not_looked_at_in_v1beta1():
    found = read(answer("v1beta1", patch=ADD, patchType="zz"), "u", "admission.k8s.io/v1beta1", is_mutating=True)
    assert 1 == len(found.patch)


@pytest.mark.parametrize(
    ("code", "answered"),
    [(-1, 400), (0, 400), (200, 400), (399, 400), (400, 400), (409, 409), (599, 599), (600, 600), (999, 999),
     (1_000, 500), (99_999, 500), (1 << 70, 500), ("403", 400), (None, 400), (403.5, 400)],
)  # fmt: skip
def test_a_refusal_has_a_code_that_can_be_sent(code, answered):
    reply = read(answer(allowed=False, status={"code": code, "message": "no"}), "u", V1, is_mutating=False)

    refused = rejection(SimpleNamespace(name="w"), reply)

    assert answered == refused.code == refused.status()["code"]
