"""ResourceQuota controller: recounts the usage of a namespace's objects."""
