"""TTL controller: deletes finished Jobs after their TTL."""
