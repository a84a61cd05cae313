"""Parts of a write: its context, the reading of bodies, metadata of new objects, preconditions, staging, spans."""
