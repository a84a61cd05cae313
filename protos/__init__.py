"""What travels between processes: `mesh/v1/apiserver.proto` and the stubs generated from it, committed.

The stubs sit beside their source because compiling from the repository root makes protoc write
`from protos.mesh.v1 import …`. After changing a `.proto`: `python -m protos`. To ask whether the
stubs still fit: `python -m protos --check`. Both need the development tools (grpcio-tools,
mypy-protobuf); running the mesh does not.
"""
