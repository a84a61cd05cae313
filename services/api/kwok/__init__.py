"""KWOK's kinds besides Stage: documents of them, which pods they are for, and their expressions."""
