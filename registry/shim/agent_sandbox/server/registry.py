"""Named commands."""

from __future__ import annotations

import inspect
import json
import sys
import threading
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Callable, List, Optional, Tuple

from ._coerce import effective, is_string_array
from .types import ARGUMENT_TYPES


class _Loading:
    """The number of the --commands item that is being loaded.

    It lets the server merge commands of several sources in the order they were
    registered.
    """

    item = 0


loading = _Loading()


@dataclass
class CommandArg:
    name: str
    type: str = "string"
    required: bool = False
    default: Optional[str] = None
    description: str = ""

    def __post_init__(self):
        if self.type not in ARGUMENT_TYPES:
            raise ValueError("argument %r: unknown type %r; known: %s" % (self.name, self.type, ", ".join(ARGUMENT_TYPES)))
        if self.default is None:
            return
        if not isinstance(self.default, str):
            self.default = json.dumps(self.default) if self.type == "string_array" else str(self.default)
        if self.type == "string_array":
            try:
                fits = is_string_array(json.loads(self.default))
            except ValueError:
                fits = False
            if not fits:
                raise ValueError("argument %r: the default of a string_array is JSON text of an array of strings" % self.name)


@dataclass
class RegisteredCommand:
    name: str
    fn: Callable
    args: List[CommandArg] = field(default_factory=list)
    description: str = ""
    hidden: bool = False
    scopes: Tuple[str, ...] = ()

    # Arguments that are left to the function when a call does not give them.
    _own_defaults: Any = field(default=frozenset(), repr=False, compare=False)
    _first_item: int = field(default=0, repr=False, compare=False)
    _item: int = field(default=0, repr=False, compare=False)

    def __post_init__(self):
        self._by_position = _positional_only(self.fn)

    def prepare(self, given):
        """The call with these JSON arguments as a function without parameters."""
        kwargs = effective(self.args, given, self._own_defaults)
        args = []
        for name in self._by_position:
            if name not in kwargs:
                break
            args.append(kwargs.pop(name))
        return lambda: self.fn(*args, **kwargs)


class CommandRegistry:
    """A set of commands, in the order they were first registered."""

    def __init__(self):
        self._commands = {}
        self._frozen = False
        self._lock = threading.Lock()

    def register(self, name, fn, *, args=None, description="", hidden=False, scopes=()):
        """Register fn under name. No arguments are inferred: absent args are none."""
        self._add(name, fn, list(args or ()), description, hidden, scopes)

    def command(self, name=None, *, hidden=False, description="", scopes=(), args=None):
        """Decorate a function. Its signature says which arguments it takes, unless args do."""
        if callable(name):
            raise TypeError("use @command() with parentheses")

        def decorate(fn):
            inferred, own = (list(args), frozenset()) if args is not None else infer(fn)
            self._add(name or fn.__name__, fn, inferred, description, hidden, scopes, own)
            return fn

        return decorate

    def _add(self, name, fn, args, description, hidden, scopes, own_defaults=frozenset()):
        if not isinstance(name, str) or not name:
            raise ValueError("a command needs a name")
        if isinstance(scopes, str):
            scopes = (scopes,)
        with self._lock:
            if self._frozen:
                raise RuntimeError("command %r: the server has started, its commands are fixed" % name)
            old = self._commands.get(name)
            first = old._first_item if old is not None else loading.item
            self._commands[name] = RegisteredCommand(
                name, fn, args, description, hidden, tuple(scopes), own_defaults, first, loading.item
            )

    def freeze(self):
        with self._lock:
            self._frozen = True

    def get(self, name):
        return self._commands.get(name)

    def list_all(self):
        return list(self._commands.values())

    def list_visible(self):
        return [c for c in self._commands.values() if not c.hidden]

    def __contains__(self, name):
        return name in self._commands

    def __len__(self):
        return len(self._commands)


def infer(fn):
    """The arguments a function's signature declares, and which of them keep its own default."""
    try:
        hints = _hints(fn)
    except Exception:
        hints = {}
    args, own = [], set()
    for name, p in inspect.signature(fn).parameters.items():
        kind = _type_name(hints.get(name, p.annotation))
        if p.default is inspect.Parameter.empty:
            args.append(CommandArg(name, kind, required=True))
            continue
        if kind == "string" and not isinstance(p.default, str):
            own.add(name)
        args.append(CommandArg(name, kind, default=_default_text(name, kind, p.default)))
    return args, frozenset(own)


def _hints(fn):
    if sys.version_info >= (3, 11):
        return typing.get_type_hints(fn)
    # Before, a default of None made any type an Optional one. An object without
    # code has no defaults to look at.
    fn = inspect.unwrap(fn)
    fn = getattr(fn, "__func__", fn)
    bare = types.SimpleNamespace(__annotations__=fn.__annotations__)
    return typing.get_type_hints(bare, fn.__globals__)


def _type_name(hint):
    if hint is int:
        return "integer"
    if hint is float:
        return "float"
    if hint is bool:
        return "boolean"
    if getattr(hint, "__metadata__", None) is not None:  # Annotated, where hints were not resolved
        return _type_name(hint.__origin__)
    if getattr(hint, "__origin__", None) is list and getattr(hint, "__args__", None) == (str,):
        return "string_array"
    return "string"


def _default_text(name, kind, value):
    if kind == "string_array":
        text = json.dumps(value)
        if not is_string_array(json.loads(text)):
            raise ValueError("argument %r: the default of a list of strings must be one" % name)
        return text
    return None if value is None else str(value)


def _positional_only(fn):
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(p.name for p in parameters if p.kind is p.POSITIONAL_ONLY)


_default = CommandRegistry()


def default_registry():
    return _default


def command(name=None, *, hidden=False, description="", scopes=(), args=None):
    """Register the decorated function in the default registry."""
    return _default.command(name, hidden=hidden, description=description, scopes=scopes, args=args)
