"""The scheduler: it chooses a node for every pod, serially, and makes the choices true, concurrently."""
