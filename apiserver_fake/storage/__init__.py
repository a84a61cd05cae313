"""Storage of versioned objects: journal, store, writer, watches."""
