"""Recordings (`.keprec`): the versions, bodies, event lines and spans of a run or a mesh, in one file."""
