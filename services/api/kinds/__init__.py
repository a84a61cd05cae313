"""One file per kind: its `RESOURCE` record, the typed view, and the columns of `kubectl get`."""
