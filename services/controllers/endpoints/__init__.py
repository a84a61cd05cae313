"""The controller of Endpoints."""
