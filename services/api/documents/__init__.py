"""Text formats of documents."""
