"""StatefulSet controller: pods with an identity, in order."""
