"""Validation of documents; the texts are upstream's."""
