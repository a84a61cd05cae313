"""What became of pods in a run, as figures that runs can be compared by. Pure."""
