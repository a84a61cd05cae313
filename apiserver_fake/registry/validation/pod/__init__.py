"""Rules and defaults of a pod's spec, in a Pod or in a workload's template."""
