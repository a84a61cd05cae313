"""What the components of a mesh decided in a run, and where two runs decided differently."""
