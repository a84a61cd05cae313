"""A file a plugin, or a folder with a `plugin.py`; being here makes a plugin known, `default_plugins` turns it on."""
