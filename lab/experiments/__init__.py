"""Comparison of several arms of one scenario with the same seeds: differences pod by pod, and a page that
shows them.
"""
