"""EndpointSlices: where a Service's pods are reached, and which of them are ready."""
