"""Finished Jobs deleted when their time is over."""
