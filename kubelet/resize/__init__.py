"""The resizes of one node: their queue, the decisions, and the records."""
