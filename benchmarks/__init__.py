"""Every figure that the project reports about itself, from one run on one machine."""
