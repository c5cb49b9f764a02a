"""The values that route handlers take and give."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Dict, List

ARGUMENT_TYPES = ("string", "integer", "float", "boolean", "string_array")


class CapabilityGroup(str, enum.Enum):
    CORE = "core"
    COMMANDS = "commands"
    FILE_OPS = "file_ops"
    PROCESS = "process"
    TERMINAL = "terminal"
    SYSTEM = "system"
    DEV_TOOLS = "dev_tools"
    BROWSER = "browser"
    AGENTS = "agents"

    def __str__(self):
        return self.value


class Headers(dict):
    """Header names and values; names are found whatever their case."""

    def __init__(self, items=()):
        super().__init__(items)
        self._names = {name.lower(): name for name in self}

    def __getitem__(self, name):
        return super().__getitem__(self._names.get(name.lower(), name))

    def __contains__(self, name):
        return isinstance(name, str) and name.lower() in self._names

    def get(self, name, default=None):
        return self[name] if name in self else default


@dataclass
class ServerRequest:
    method: str
    path: str
    query: Dict[str, List[str]] = field(default_factory=dict)
    headers: Dict[str, str] = field(default_factory=dict)
    body: Any = None
    path_params: Dict[str, str] = field(default_factory=dict)
    context: Dict[str, Any] = field(default_factory=dict)


@dataclass
class ServerResponse:
    status: int = 200
    body: Any = None
    headers: Dict[str, str] = field(default_factory=dict)

    @classmethod
    def ok(cls, data=None):
        return cls(200, {} if data is None else data)

    @classmethod
    def error(cls, status, message, error_type="ValueError"):
        return cls(status, {"error": message, "type": error_type})


@dataclass
class SSEResponse:
    """A stream. The iterator's items are str or bytes, framed as events already."""

    status: int = 200
    headers: Dict[str, str] = field(default_factory=dict)
    event_iterator: Any = ()
