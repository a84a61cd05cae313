"""Exit 0 when this container's process says that it is ready."""

import os
import socket
import sys

TIMEOUT_S = 2.0


def main() -> None:
    """Ask /readyz. Sockets alone: this runs every few seconds in every container."""
    port = int(os.environ.get("KEPLAB_HEALTH_PORT", "8081"))
    try:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
            connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = connection.recv(64)
    except OSError as error:
        sys.exit(f"/readyz on port {port}: {error}")
    if not answer.startswith(b"HTTP/1.1 200"):
        sys.exit(f"/readyz on port {port}: {answer[:32]!r}")


if __name__ == "__main__":
    main()
