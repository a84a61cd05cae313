"""`keplab`: what people type. Each file of `commands/` is one command; the folder is the register."""
