"""How evenly pods lie over the values of node labels: what PodTopologySpread is made of."""
