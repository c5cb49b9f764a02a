"""Routes that template code adds to the server's own."""

from __future__ import annotations

import inspect
import threading
from dataclasses import dataclass, replace
from typing import Any, Callable, Tuple

from .types import CapabilityGroup


@dataclass(frozen=True)
class RouteInfo:
    method: str
    pattern: str
    handler: Callable
    group: CapabilityGroup
    auth_required: bool = True
    streaming: bool = False
    name: str = ""
    scopes: Tuple[str, ...] = ()
    spec: Any = None
    summary: str = ""

    @property
    def id(self):
        """The endpoint id: the name, or method and pattern."""
        return self.name or "%s %s" % (self.method, self.pattern)


class RouteTable:
    """Routes in the order they were registered, and the switches of groups."""

    def __init__(self):
        self._routes = []
        self._groups = {}
        self._frozen = False
        self._lock = threading.Lock()

    def enable_group(self, group):
        self._switch(group, True)

    def disable_group(self, group):
        self._switch(group, False)

    def _switch(self, group, on):
        group = CapabilityGroup(group)
        if group is CapabilityGroup.CORE and not on:
            raise ValueError("the core group cannot be disabled")
        with self._lock:
            self._may_change()
            self._groups[group] = on

    def clear_group_overrides(self):
        with self._lock:
            self._may_change()
            self._groups.clear()

    @property
    def group_overrides(self):
        return dict(self._groups)

    def register(
        self, method, pattern, handler, *, group, auth_required=True, streaming=False, name="", scopes=(), spec=None, summary=""
    ):
        if isinstance(scopes, str):
            scopes = (scopes,)
        if not summary:
            summary = (inspect.getdoc(handler) or "").partition("\n")[0]
        route = RouteInfo(
            method.upper(), pattern, handler, CapabilityGroup(group), bool(auth_required), bool(streaming), name,
            tuple(scopes), spec, summary,
        )
        with self._lock:
            self._may_change()
            self._routes.append(route)

    def route(self, method, pattern, **options):
        """Decorate a handler; the options are those of register."""

        def decorate(handler):
            self.register(method, pattern, handler, **options)
            return handler

        return decorate

    def match(self, method, path):
        """The first route that serves method and path with its path parameters, or None."""
        got = path.partition("?")[0].strip("/").split("/")
        for route in self._routes:
            want = route.pattern.strip("/").split("/")
            if route.method != method or len(want) != len(got):
                continue
            params = {}
            for w, g in zip(want, got):
                if w.startswith("{") and w.endswith("}") and g:
                    params[w[1:-1]] = g
                elif w != g:
                    break
            else:
                return route, params
        return None

    def by_name(self, name):
        for route in self._routes:
            if route.id == name:
                return route
        return None

    def copy(self):
        other = RouteTable()
        other._routes = [replace(r) for r in self._routes]
        other._groups = dict(self._groups)
        return other

    def freeze(self):
        with self._lock:
            self._frozen = True

    def _may_change(self):
        if self._frozen:
            raise RuntimeError("the server has started, its routes are fixed")

    def __iter__(self):
        return iter(self._routes)

    def __len__(self):
        return len(self._routes)


_default = RouteTable()


def default_table():
    return _default
