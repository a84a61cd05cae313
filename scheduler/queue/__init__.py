"""Which pod is tried next, and what brings a rejected one back: queue, back-off, hints, exclusions."""
