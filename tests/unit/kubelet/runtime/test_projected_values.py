"""The values of ConfigMaps and Secrets as containers get them."""

import base64

from kubelet.runtime.projections import SECRETS, data_of


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_a_config_map_has_texts_and_bytes_side_by_side():
    document = {"data": {"text": "é"}, "binaryData": {"bytes": b64(b"\xff\x00")}}

    assert {"text": "é".encode(), "bytes": b"\xff\x00"} == data_of("configmaps", document)


def test_a_secret_has_bytes_and_its_string_data_is_the_servers_business():
    assert {"key": b"\xff"} == data_of(SECRETS, {"data": {"key": b64(b"\xff")}, "stringData": {"other": "x"}})


def test_a_value_that_cannot_be_decoded_is_empty_and_an_object_may_have_none():
    assert {"key": b""} == data_of(SECRETS, {"data": {"key": "!"}})
    assert ({}, {}) == (data_of(SECRETS, {}), data_of("configmaps", {"data": None, "binaryData": None}))
