"""The controller manager: every folder is a controller, `shared_*` what several of them use."""
