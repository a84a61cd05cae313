"""Controller that unbinds pods on behalf of their kubelets (switch `unbind.api=condition`)."""
