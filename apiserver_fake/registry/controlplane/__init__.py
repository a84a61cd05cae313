"""Writes by the server itself: first objects, its endpoints, addresses of Services, deletion of old Events.

Source: upstream `pkg/controlplane/controller/`.
"""
