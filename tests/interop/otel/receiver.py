"""An OTLP/gRPC receiver as a process, for machines where the OpenTelemetry Collector is not built.

    python tests/interop/otel/receiver.py PORT SINK_URL

What comes is checked to be OTLP and handed on over HTTP, as the collector's `otlphttp` exporter does.
"""

import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service


class Receiver(service.TraceServiceServicer):
    def __init__(self, sink_url: str) -> None:
        self._sink_url = sink_url

    def Export(self, request, context):  # noqa: N802
        headers = {"Content-Type": "application/x-protobuf"}
        call = urllib.request.Request(f"{self._sink_url}/v1/traces", request.SerializeToString(), headers)
        with urllib.request.urlopen(call, timeout=5):
            return pb.ExportTraceServiceResponse()


def main() -> None:
    server = grpc.server(ThreadPoolExecutor(4))
    service.add_TraceServiceServicer_to_server(Receiver(sys.argv[2]), server)
    server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
