"""The formats that are read and written, a file a format."""
