"""The kinds that have rules of their own, by API group or subject; each file offers `STRATEGIES`."""
