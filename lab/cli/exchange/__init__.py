"""Helpers of the commands that read and write files of other tools."""
