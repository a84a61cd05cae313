"""The server's lines in the event log."""
