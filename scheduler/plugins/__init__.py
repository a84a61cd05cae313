"""One file a plugin; being in this folder makes it known, naming it in `profiles.py` turns it on."""
