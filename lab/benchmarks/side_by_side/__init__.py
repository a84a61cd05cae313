"""Benchmark of keplab beside another control plane, with one client, in interleaved rounds."""
