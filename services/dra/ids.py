"""What devices, pools and counters are called in the whole cluster."""

DeviceId = tuple[str, str, str]
"""`(driver, pool, device)`."""
PoolId = tuple[str, str]
"""`(driver, pool)`."""
CounterId = tuple[str, str]
"""`(counter set, counter)` of a pool."""
