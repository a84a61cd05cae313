"""The claims of generic ephemeral volumes."""
