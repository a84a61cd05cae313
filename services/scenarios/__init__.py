"""Stories that run: the whole house in one virtual loop, or as real processes, judged while it runs."""
