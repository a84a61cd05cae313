"""EndpointSlice controller: addresses and readiness of a Service's pods."""
