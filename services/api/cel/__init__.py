"""The part of the Common Expression Language in which devices are selected; the rest is refused when it is read."""
