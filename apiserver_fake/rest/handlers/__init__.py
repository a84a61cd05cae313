"""Handlers of requests by subject: authentication, rights, discovery, server pages, resources, connections, reviews."""
