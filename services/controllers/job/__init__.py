"""Job controller: runs pods to completion and counts each once."""
