"""The parts of PodTopologySpread: the even spread of pods over the values of node labels."""
