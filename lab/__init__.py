"""The laboratory: what experiments are made with, on top of the components. It imports them; they do not import it."""
