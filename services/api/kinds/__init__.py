"""One file a kind: its `RESOURCE` record, the typed view, and the columns `kubectl get` prints."""
