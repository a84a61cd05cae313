"""One file a command: `up.py` has the function `up`, and `keplab up` exists. Nothing else needs to know."""
