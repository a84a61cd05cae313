"""The controller manager: every folder is a controller, `shared_*` folders are used by several of them."""
