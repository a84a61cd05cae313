"""The plugins: one file each, or a folder with a `plugin.py`; `default_plugins` turns a known one on."""
