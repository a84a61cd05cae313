"""One file for each command: `up.py` has the function `up` for `keplab up`; the command table lists them."""
