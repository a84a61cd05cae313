"""KWOK's kinds: Stages, their expressions and templates; usage, logs and metric pages of emulated pods.

Pure. A kubelet plays the Stages, or `services/controllers/stage_player` for objects that no kubelet hosts.
Source: kubernetes-sigs/kwok; decision 0078.
"""
