"""One file a command: `up.py` offers `COMMAND`, and `keplab up` exists. Nothing else needs to know."""
