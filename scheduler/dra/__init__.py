"""Claims outside the allocator: the scheduler's assumptions about them, and their writes (KEP-4381)."""
