"""`keplab`: the command line. Each file of `commands/` is one command, with a row in the command table."""
