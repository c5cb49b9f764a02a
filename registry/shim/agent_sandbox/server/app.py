"""The server as template code sees it."""

from __future__ import annotations

from ._worker import current
from .policy import document_of
from .registry import default_registry
from .router import default_table


class SandboxServer:
    """The server with its commands and routes. One runs in a process."""

    def __init__(self, host="0.0.0.0", registry=None, route_table=None, pty_port=None, policy=None):
        self.host = host
        self.registry = registry if registry is not None else default_registry()
        self.route_table = route_table if route_table is not None else default_table()
        self.pty_port = pty_port
        self.policy = policy
        self._document = document_of(policy)

    def serve(self, port=9000):
        """Serve until the server is told to stop.

        In a file the server loads, this loads the remaining files and serves
        right here; what the command line says goes before the values given.
        """
        worker = current()
        if worker is not None:
            worker.serve(self, self.values(port))
            return
        from ._attach import run

        run(self, port)

    def shutdown(self):
        """Make serve return; from any thread."""
        worker = current()
        if worker is None:
            raise RuntimeError("the server does not run")
        worker.stop_server()

    def values(self, port):
        return {"port": port, "host": self.host, "policy": self._document, "pty_port": self.pty_port}


def start(port=9000, host="0.0.0.0", registry=None, policy=None):
    """Serve the commands registered so far until the server is told to stop."""
    SandboxServer(host, registry=registry, policy=policy).serve(port)
