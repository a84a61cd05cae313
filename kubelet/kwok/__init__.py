"""What a kubelet does for KWOK's kinds besides Stage: usage of its pods, pages of metrics, logs in files."""
