"""Benchmarks of a mesh and of its scheduler. Figures are comparable only within one run.

Each workload starts the processes it measures, drives them, reads what they cost, and stops them.
`keplab bench` runs one workload; `python -m lab.benchmarks` runs all and writes every figure that the
project reports about itself.
"""
