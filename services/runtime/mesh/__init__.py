"""Configuration and supervision of the processes of a mesh on one machine."""
