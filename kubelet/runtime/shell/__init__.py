"""A shell with its programs (ls, tar, grep …) and files, for containers that only take time.

It is entered through `kubelet/runtime/commands`, for how a command ends, and `kubelet/agent/streams`, for
`kubectl exec`.
"""
