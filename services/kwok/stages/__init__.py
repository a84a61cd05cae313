"""KWOK Stages: lives of objects as data, read from files or objects and played by the kubelet or a controller."""
