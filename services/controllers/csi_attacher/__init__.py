"""The emulated external-attacher, with its emulated CSI drivers."""
