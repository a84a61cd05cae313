"""Bodies in this file were sent by kubectl v1.36.4."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_fake.rest import protobuf
from services.api.errors import ApiError, BadRequest, UnsupportedMediaType

DEPLOYMENT = (
    "azhzAAoVCgdhcHBzL3YxEgpEZXBsb3ltZW50Eq0BCiEKAmQyEgAaBGRlbW8iACoAMgA4AEIAWgkKA2FwcBICZDISeggAEgsKCQoDYXBwEgJkMhph"
    "ChsKABIAGgAiACoAMgA4AEIAWgkKA2FwcBICZDISQhIkCgVuZ2lueBIHbmdpbng6MSoAQgBqAHIAgAEAiAEAkAEAogEAGgAyAEIASgBSAFgAYABo"
    "AIIBAIoBAJoBAMIBACICCgAoADgAGgwIABAAGAAgACgAOAAaACIA"
)
SECRET = "azhzAAoMCgJ2MRIGU2VjcmV0EiIKFgoCczESABoEZGVtbyIAKgAyADgAQgASBgoBYRIBYhoAGgAiAA=="
BUDGET = (
    "azhzAAogCglwb2xpY3kvdjESE1BvZERpc3J1cHRpb25CdWRnZXQSQQoYCgRwZGIxEgAaBGRlbW8iACoAMgA4AEIAEhkKCQgBEAAaAzUwJRIMCgoK"
    "A2FwcBIDd2ViGgoIABgAIAAoADAAGgAiAA=="
)


def decoded(text):
    return protobuf.decode(base64.b64decode(text))


def test_a_deployment_keeps_the_zero_that_was_meant_and_drops_those_that_were_not():
    assert decoded(DEPLOYMENT) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d2", "namespace": "demo", "labels": {"app": "d2"}},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "d2"}},
            "template": {
                "metadata": {"labels": {"app": "d2"}},
                "spec": {"containers": [{"name": "nginx", "image": "nginx:1", "resources": {}}]},
            },
            "strategy": {},
        },
        "status": {},
    }


def test_secret_data_becomes_base64():
    assert decoded(SECRET)["data"] == {"a": "Yg=="}


def test_a_percentage_stays_text():
    assert decoded(BUDGET)["spec"]["minAvailable"] == "50%"


def test_bytes_without_the_magic_are_a_bad_request():
    with pytest.raises(BadRequest, match="magic"):
        protobuf.decode(b'{"kind":"Pod"}')


def test_a_kind_without_a_message_is_an_unsupported_media_type():
    role = protobuf.MAGIC + b"\x0a\x17" + b"\x0a\x0frbac.x.io/v1abc" + b"\x12\x04Role"

    with pytest.raises(UnsupportedMediaType, match="Role"):
        protobuf.decode(role)


@given(st.binary(max_size=80), st.integers(0, 200))
def test_guarantees_v2_damaged_messages_are_refused_or_read_but_never_crash(junk, at):
    whole = base64.b64decode(DEPLOYMENT)

    try:
        code = 200 if isinstance(protobuf.decode(whole[:at] + junk + whole[at + len(junk) :]), dict) else 0
    except ApiError as error:
        code = error.code

    assert code in (200, 400, 415)
