"""Devices of pods on a node: prepared by drivers before a pod starts, unprepared after it ended (KEP-4381)."""
