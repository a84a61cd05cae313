"""Rules of kinds: one module per API group, or per kind if it has many rules; each offers `STRATEGIES`."""
