"""Authorization: what an identity may do, checked before the body is read and again inside the commit."""
