"""Service accounts: the tokens that authenticate them, and what pods get that run under one."""
