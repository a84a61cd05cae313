"""Every field with every value that is odd for it: a share of `python -m tests.fuzz.fields`."""

import pytest

from tests.fuzz import fields
from tests.fuzz.target import JSON, Target

EVERY = 401


@pytest.fixture(scope="module")
def target():
    with Target() as found:
        yield found


def test_every_four_hundredth_field_and_value_is_taken_or_refused(target):
    assert [] == fields.failures(target, fields.requests(target.server.catalogue, EVERY))


def test_every_field_and_value_of_a_review_is_taken_or_refused(target):
    assert [] == fields.failures(target, fields.reviews())


CLAIM = b'{"metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi","x":"%b"}}}}'
CERTIFICATE = b'{"metadata":{"name":"v1.c.d"},"spec":{"group":"c.d","version":"v1","groupPriorityMinimum":5,"versionPriority":1,"caBundle":"%b"}}'


@pytest.mark.parametrize(
    ("path", "body", "code", "message"),
    [
        (
            b"/apis/apiregistration.k8s.io/v1/apiservices",
            CERTIFICATE % b"abc",
            400,
            'APIService in version "v1" cannot be handled as a APIService: illegal base64 data at input byte 0',
        ),
        (
            b"/apis/apiregistration.k8s.io/v1/apiservices",
            CERTIFICATE % b"YWJj",
            422,
            'spec.caBundle: Invalid value: "3 bytes": local APIServices may not have a caBundle',
        ),
        (
            b"/api/v1/namespaces/default/persistentvolumeclaims",
            CLAIM % b"1e999",
            422,
            'spec.resources.requests[x]: Invalid value: "1e999": quantities must match the regular expression',
        ),
        (
            b"/apis/authorization.k8s.io/v1/subjectaccessreviews",
            b'{"spec":{"user":"a","extra":"x","nonResourceAttributes":{"path":"/","verb":"get"}}}',
            400,
            "json: cannot unmarshal string into Go struct field SubjectAccessReviewSpec.spec.extra of type map[string]v1",
        ),
        (
            b"/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews",
            b'{"spec":{"user":"a","groups":[{}],"resourceAttributes":{"namespace":"default","verb":"get"}}}',
            400,
            "json: cannot unmarshal object into Go struct field SubjectAccessReviewSpec.spec.groups of type string",
        ),
    ],
)
def test_a_field_that_cannot_be_read_is_named(target, path, body, code, message):
    answer = target.run(target.ask("POST", path, body, [JSON]))
    assert (code, True) == (answer.status, message in answer.document()["message"]), answer.body
