"""Authorization: which identity may do what, before the body is read and inside the commit."""
