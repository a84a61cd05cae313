"""API calls about pods: queued, merged, delayed and run beside the scheduling loop (KEP-5229)."""
