"""Mirrored EndpointSlices: Endpoints that were made by hand, as slices."""
