"""Controller of the claims of generic ephemeral volumes."""
