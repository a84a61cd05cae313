"""Rules and defaults of a pod's spec, wherever it stands: in a Pod or in a workload's template."""
