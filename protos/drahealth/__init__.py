"""How DRA drivers report the health of their devices, by version (upstream's `dra-health`)."""
