"""Features that nodes have or lack."""
