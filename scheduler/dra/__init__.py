"""Claims beside the allocator: what is assumed of them, and how they are written (KEP-4381)."""
