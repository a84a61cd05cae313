"""A PodGroup stays as long as pods are in it."""
