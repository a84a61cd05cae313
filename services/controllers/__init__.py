"""The controller manager; every file that offers `controller` is one controller, the rest is their shared rules."""
