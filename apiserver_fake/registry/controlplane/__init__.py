"""What the server writes of itself: first objects, its endpoints, addresses of Services, the end of old Events.

Source: upstream `pkg/controlplane/controller/`.
"""
