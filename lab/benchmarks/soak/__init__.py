"""Soak test: a mesh under churn and faults for hours, and the figures that grow meanwhile."""
