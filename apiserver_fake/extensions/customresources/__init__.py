"""Custom resources: the rules of CustomResourceDefinitions, and their schemas applied to objects. Pure."""
