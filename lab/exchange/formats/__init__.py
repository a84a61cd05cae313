"""The formats that are read and written, one file for each."""
