"""Printing and writing of results for `keplab bench`; the measuring is elsewhere."""
