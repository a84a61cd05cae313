"""Custom resources: what a CustomResourceDefinition may say, and what its schemas say of objects. Pure."""
