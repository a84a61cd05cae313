"""Objects at their versions: journal, store, writer, watches."""
