"""API priority and fairness (KEP-1040): which requests are executed, queued or refused under overload."""
