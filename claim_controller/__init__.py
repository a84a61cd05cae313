"""Controllers of claims and devices: each folder is a controller, and the process runs them all."""
