"""Policies written in code. The binary checks and enforces them."""

from __future__ import annotations

import copy
import json
import os


class PolicyDenied(Exception):
    """A refusal. A command or a route that raises it is answered 403."""

    def __init__(self, message="Denied by policy", code="denied"):
        super().__init__(message)
        self.code = code


class ServerPolicy:
    """A policy document. Values are never changed in place."""

    def __init__(self, document=None):
        self._document = copy.deepcopy(dict(document or {}))
        self._ambient = False

    @classmethod
    def from_dict(cls, document):
        return cls(document)

    @classmethod
    def from_json(cls, text):
        document = json.loads(text)
        if not isinstance(document, dict):
            raise ValueError("a policy is a JSON object")
        return cls(document)

    @classmethod
    def from_file(cls, path):
        with open(path, encoding="utf-8") as f:
            return cls.from_json(f.read())

    @classmethod
    def preset(cls, name):
        return cls({"preset": name})

    @classmethod
    def only(cls, *endpoints):
        """Everything off but these endpoints, globs or `group:` selectors."""
        names = []
        for e in endpoints:
            names += [e] if isinstance(e, str) else list(e)
        rules = {"*": {"enabled": False}}
        for name in names:
            rules[name] = {"enabled": True}
        return cls({"endpoints": rules})

    @classmethod
    def from_environment(cls):
        """The policy the environment names.

        A worker cannot see it, since it may hold tokens. There the value stands
        for whatever policy the server was given, and cannot be built upon.
        """
        from ._worker import current

        if current() is not None:
            policy = cls()
            policy._ambient = True
            return policy
        if os.environ.get("ABX_SERVER_POLICY"):
            return cls.from_json(os.environ["ABX_SERVER_POLICY"])
        if os.environ.get("ABX_SERVER_POLICY_FILE"):
            return cls.from_file(os.environ["ABX_SERVER_POLICY_FILE"])
        return cls()

    def with_endpoint(self, selector, rule=None, **parts):
        """With the rule of one endpoint, glob or `group:` selector; given parts replace its own."""
        document = self._base()
        merged = dict(document.setdefault("endpoints", {}).get(selector, {}))
        merged.update(rule or {})
        merged.update(parts)
        document["endpoints"][selector] = merged
        return type(self)(document)

    def with_options(self, **options):
        """With other top-level members, such as base_dir or groups."""
        document = self._base()
        document.update(options)
        return type(self)(document)

    def _base(self):
        if self._ambient:
            raise RuntimeError("the server's own policy is not readable in its worker, so it cannot be extended here")
        return copy.deepcopy(self._document)

    def to_dict(self):
        return copy.deepcopy(self._document)


def document_of(policy):
    """The document to hand to the server, or None when it keeps its own."""
    if policy is None:
        return None
    if isinstance(policy, ServerPolicy):
        return None if policy._ambient else policy.to_dict()
    if isinstance(policy, dict):
        return dict(policy)
    raise TypeError("policy: expected a ServerPolicy, got %s" % type(policy).__name__)
