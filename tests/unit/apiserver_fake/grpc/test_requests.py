"""A request message becomes the wire value with every member that both have."""

import msgspec
from google.protobuf.descriptor import FieldDescriptor

from apiserver_fake.grpc.server import request_of
from protos.mesh.v1 import apiserver_pb2 as pb
from services.api.wire import Request

SAMPLES = {
    FieldDescriptor.CPPTYPE_STRING: lambda field: f"text {field.name}",
    FieldDescriptor.CPPTYPE_BOOL: lambda field: True,
    FieldDescriptor.CPPTYPE_DOUBLE: lambda field: 1.5,
    FieldDescriptor.CPPTYPE_INT64: lambda field: field.number,
    FieldDescriptor.CPPTYPE_UINT64: lambda field: field.number,
}


def test_a_request_has_every_member_of_its_message_but_those_of_the_stream():
    fields = pb.Request.DESCRIPTOR.fields
    values = {field.name: b"{}" if field.name == "body" else SAMPLES[field.cpp_type](field) for field in fields}
    message = pb.Request.FromString(pb.Request(**values).SerializeToString())

    request = request_of(message)

    assert {name: getattr(request, name) for name in values if name not in ("id", "token")} == {
        name: value for name, value in values.items() if name not in ("id", "token")
    }
    assert request == msgspec.convert(message, Request, from_attributes=True)


def test_an_empty_message_is_a_request_with_the_members_of_none():
    assert request_of(pb.Request()) == Request(verb="", resource="")
