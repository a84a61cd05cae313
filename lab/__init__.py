"""The laboratory: the tools that experiments are made with, on top of the components.

It imports the components; they do not import it.
"""
