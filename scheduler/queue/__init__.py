"""The order of attempts, and the return of rejected pods: queue, back-off, hints, exclusions."""
