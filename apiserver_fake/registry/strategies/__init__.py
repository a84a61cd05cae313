"""Rules of kinds: a module an API group, or a kind where a kind has much of its own; each offers `STRATEGIES`."""
