"""Handlers of requests by subject: who asks, what the server says of itself, resources, streams, reviews, answers."""
