"""The write and read path of every kind: decode, default, admit, validate, commit."""
