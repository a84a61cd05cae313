"""DaemonSet controller: one pod on every matching node."""
