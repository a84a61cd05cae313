"""Records of runs and comparisons: kept in a folder, and used to make runs again."""
