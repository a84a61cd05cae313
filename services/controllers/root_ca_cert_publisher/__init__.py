"""The certificate that pods know the API server by, in every namespace."""
