"""kube-scheduler-simulator's HTTP API beside a mesh: a client of the API server like any other."""
