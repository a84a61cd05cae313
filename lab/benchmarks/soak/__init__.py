"""A mesh under churn and faults for hours, and what grows meanwhile."""
