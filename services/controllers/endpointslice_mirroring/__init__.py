"""Controller that mirrors hand-made Endpoints into EndpointSlices."""
