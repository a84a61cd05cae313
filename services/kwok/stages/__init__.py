"""KWOK Stages: lifecycles of objects as data, read from files or objects and played by the kubelet or a controller."""
