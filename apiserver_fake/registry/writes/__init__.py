"""Parts of a write: its surroundings, how its bodies are read, what a new object is given, what is staged."""
