"""Service accounts: the tokens that say a caller is one, and what pods get that run as one."""
