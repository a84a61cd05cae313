"""How fast a mesh is, and its scheduler: figures of one run compare with others of the same run only.

A workload here starts what it measures, drives it, looks at what it cost, and stops it. `keplab bench` runs one
workload; `python -m lab.benchmarks` runs all and writes every figure that the project reports about itself.
"""
