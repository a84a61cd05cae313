"""The controller that deletes certificate requests that are over."""
