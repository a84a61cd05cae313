"""KWOK Stages: lives of pods and nodes as data, read from files and played by the kubelet."""
