"""kube-scheduler-simulator's HTTP API for a mesh, served by an ordinary client of the API server."""
