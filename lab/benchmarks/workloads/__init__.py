"""Workloads for the scheduler, with the names and shapes of upstream's scheduler_perf.

A workload is a record of its nodes, the pods created first, the measured pods, and concurrent operations.
`lab.benchmarks.algorithm` and `lab.benchmarks.scheduler_mesh` run the same records. Source:
kubernetes/kubernetes `test/integration/scheduler_perf/*/performance-config.yaml`.
"""
