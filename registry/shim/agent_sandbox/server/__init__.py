"""What template code imports: named commands, extra routes, and start().

The server itself is one binary. This package is how Python code takes part in
it: as the binary's worker (`serve --commands commands.py`), or by starting the
binary and serving it from here (`python commands.py`).
"""

from ._version import __version__
from .app import SandboxServer, start
from .policy import PolicyDenied, ServerPolicy
from .pty import PtySession, PtySessionManager, pty_session_manager, start_pty_server
from .registry import CommandArg, CommandRegistry, RegisteredCommand, command, default_registry
from .router import RouteInfo, RouteTable, default_table
from .types import CapabilityGroup, ServerRequest, ServerResponse, SSEResponse

__all__ = [
    "CapabilityGroup",
    "CommandArg",
    "CommandRegistry",
    "PolicyDenied",
    "PtySession",
    "PtySessionManager",
    "RegisteredCommand",
    "RouteInfo",
    "RouteTable",
    "SSEResponse",
    "SandboxServer",
    "ServerPolicy",
    "ServerRequest",
    "ServerResponse",
    "__version__",
    "command",
    "default_registry",
    "default_table",
    "pty_session_manager",
    "start",
    "start_pty_server",
]
