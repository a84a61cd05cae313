"""Loads for the scheduler, under the names and in the shapes of upstream's scheduler_perf.

A workload is a record: which nodes there are, which pods come first, which pods are measured, and what
happens meanwhile. `lab.benchmarks.algorithm` and `lab.benchmarks.scheduler_mesh` play the same records.
Source: kubernetes/kubernetes `test/integration/scheduler_perf/*/performance-config.yaml`.
"""
