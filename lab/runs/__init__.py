"""What was run: a record of each run and comparison, kept in a folder, and what is made again from it."""
