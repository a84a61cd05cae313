"""The Common Expression Language (CEL) of Kubernetes: parsing, type checks, cost estimates and evaluation."""
