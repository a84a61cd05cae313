"""Formats that a schema may name, by texts that are of them and texts that are not (kube-openapi pkg/validation/strfmt)."""

import pytest

from apiserver_fake.extensions.customresources.formats import FORMATS, format_of, is_known

TEXTS = {
    "bsonobjectid": (["507f1f77bcf86cd799439011"], ["507f1f77bcf86cd79943901", "x07f1f77bcf86cd799439011"]),
    "uri": (["https://a.io/b?c", "/a"], ["a b", ""]),
    "email": (["a@b.io", "A B <a.b+c@d.io>", '"a b"@c'], ["a", "a@", "@b", "a@b c"]),
    "hostname": (["a.example.com", "1a", "a"], ["-a", "a_b", "a.", "a" * 64, ""]),
    "ipv4": (["10.0.0.1", "010.0.0.1", "::ffff:10.0.0.1"], ["10.0.0.256", "10.0.0", "::1"]),
    "ipv6": (["::1", "2001:db8::"], ["10.0.0.1", "::1%eth0", "1:2"]),
    "cidr": (["10.0.0.0/8", "010.0.0.0/8", "::/0"], ["10.0.0.0", "10.0.0.0/33", "a/8"]),
    "mac": (["01:23:45:67:89:ab", "01-23-45-67-89-ab", "0123.4567.89ab", "01:23:45:67:89:ab:cd:ef"], ["01:23:45:67:89", "01:23-45:67:89:ab"]),
    "uuid": (["123E4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000"], ["123e4567"]),
    "uuid3": (["123e4567-e89b-32d3-a456-426614174000"], ["123e4567-e89b-42d3-a456-426614174000"]),
    "uuid4": (["123e4567-e89b-42d3-a456-426614174000"], ["123e4567-e89b-42d3-c456-426614174000"]),
    "uuid5": (["123e4567-e89b-52d3-a456-426614174000"], ["123e4567-e89b-42d3-a456-426614174000"]),
    "isbn": (["0321751043", "978-0321751041"], ["0321751044"]),
    "isbn10": (["0321751043", "080442957X"], ["978-0321751041"]),
    "isbn13": (["978-0321751041"], ["978-0321751042"]),
    "creditcard": (["4111-1111-1111-1111"], ["4111-1111-1111-1112", "1"]),
    "ssn": (["111-11-1111", "111111111"], ["111-1-1111"]),
    "hexcolor": (["#FFFFFF", "fff"], ["#ffff"]),
    "rgbcolor": (["rgb(0,255, 10)"], ["rgb(0,256,0)", "rgb(0,0)"]),
    "byte": (["YQ==", "YWI=", "YWJj"], ["YQ", "_w==", ""]),
    "password": (["", "anything"], []),
    "date": (["2024-02-29"], ["2023-02-29", "2024-2-9"]),
    "duration": (["1h30m", "22 ns", "3 days", "-1.5s"], ["1", "a day", ""]),
    "date-time": (["2014-12-15T19:30:20.000Z", "2014-12-15t19:30:20+01:00"], ["2014-12-15", "2014-12-15T24:00:00Z", "2014-12-15T19:30Z"]),
    "k8s-short-name": (["a-1"], ["A", "a" * 64, "a.b"]),
    "k8s-long-name": (["a.b-1"], ["a..b", "a" * 254]),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_a_format_accepts_some_texts_and_refuses_others(name):
    good, bad = TEXTS[name]
    check = format_of(name)
    assert [each for each in good if not check(each)] == []
    assert [each for each in bad if check(each)] == []


def test_every_format_is_tried():
    assert {name.replace("-", "") for name in TEXTS} == set(FORMATS)


@pytest.mark.parametrize(
    ("name", "kind", "known"),
    [("int32", "integer", True), ("date", "integer", False), ("double", "number", True), ("date-time", "", True),
     ("mine", "string", False), ("date", "object", False)],
)  # fmt: skip
def test_a_format_means_something_for_its_type_alone(name, kind, known):
    assert is_known(name, kind) is known
