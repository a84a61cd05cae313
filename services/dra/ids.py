"""Cluster-wide ids of devices, pools and counters."""

DeviceId = tuple[str, str, str]
"""Id of a device: `(driver, pool, device)`."""
PoolId = tuple[str, str]
"""Id of a pool: `(driver, pool)`."""
CounterId = tuple[str, str]
"""Id of a counter of a pool: `(counter set, counter)`."""
