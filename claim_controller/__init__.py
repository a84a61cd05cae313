"""Claims and devices: every folder is a controller, and the process runs them all."""
