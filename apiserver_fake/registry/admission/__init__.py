"""Built-in admission plugins: rules that a namespace or a node sets for writes that are valid in themselves."""
