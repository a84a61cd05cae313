"""What `keplab bench` prints and writes of what is measured elsewhere."""
