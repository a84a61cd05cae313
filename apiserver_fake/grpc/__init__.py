"""The mesh's gRPC server: multiplexed calls and watches."""
