"""Terminals are the binary's: it opens them and serves them on its own port."""

from __future__ import annotations

_WHERE = "terminals are served by the agent-sandbox-server binary; use its /pty endpoints"


class PtySession:
    """A terminal. It cannot be made in Python."""

    def __init__(self, *args, **kwargs):
        raise RuntimeError(_WHERE)


class PtySessionManager:
    """The terminals seen from Python: none, since all belong to the binary."""

    def list(self):
        return []

    def get(self, session_id):
        return None

    def create(self, *args, **kwargs):
        raise RuntimeError(_WHERE)


_manager = PtySessionManager()


def pty_session_manager():
    return _manager


def start_pty_server(*args, **kwargs):
    """Do nothing: the binary listens for terminals by itself."""
