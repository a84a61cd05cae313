"""How the processes of a mesh on one machine are made and kept."""
