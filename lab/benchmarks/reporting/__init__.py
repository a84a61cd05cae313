"""The report of `make bench`: figures, their aims, the machine, and what was committed last."""
