"""What other servers would answer through the aggregation layer: metrics of nodes, pods and anything else."""
