"""API priority and fairness (KEP-1040): who is served, who waits and who is refused when there is too much to do."""
