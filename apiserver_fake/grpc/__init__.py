"""The mesh's own server: multiplexed calls and watches over gRPC."""
