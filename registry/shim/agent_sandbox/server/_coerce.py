"""Turn argument values into the types that commands declare."""

from __future__ import annotations

import json

_TRUE = ("true", "yes", "1")
_FALSE = ("false", "no", "0")


class ArgumentError(Exception):
    """Arguments that do not fit a command; `name` is the one at fault, if it is one."""

    def __init__(self, message, type_="ValueError", name=None):
        super().__init__(message)
        self.type = type_
        self.name = name


def _integer(value):
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError
    return int(value)


def _float(value):
    if not isinstance(value, (bool, int, float, str)):
        raise TypeError
    return float(value)


def _boolean(value):
    if isinstance(value, bool):
        return value
    text = str(value).lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError


def _string(value):
    return value if isinstance(value, str) else str(value)


def _string_array(value):
    if not is_string_array(value):
        raise TypeError
    return value


_CONVERTERS = {
    "string": _string,
    "integer": _integer,
    "float": _float,
    "boolean": _boolean,
    "string_array": _string_array,
}


def is_string_array(value):
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def convert(arg, value):
    """The value in the declared type of arg, or an ArgumentError."""
    try:
        return _CONVERTERS[arg.type](value)
    except (TypeError, ValueError, OverflowError):
        shown = repr(value)
        if len(shown) > 200:
            shown = shown[:200] + "..."
        raise ArgumentError(
            "Cannot convert argument '%s' to %s: %s" % (arg.name, arg.type, shown), "TypeError", arg.name
        ) from None


def from_default(arg):
    """The declared default, which is text, as a value; text that does not fit stays text."""
    try:
        if arg.type == "string_array":
            return json.loads(arg.default)
        return _CONVERTERS[arg.type](arg.default)
    except (TypeError, ValueError, OverflowError):
        return arg.default


def effective(args, given, own_defaults=()):
    """What a function with these arguments is called with."""
    declared = [arg.name for arg in args]
    unknown = sorted(set(given) - set(declared))
    if unknown:
        raise ArgumentError("Unexpected argument(s): %r; declared: %r" % (unknown, declared))
    out = {}
    for arg in args:
        if arg.name in given:
            out[arg.name] = convert(arg, given[arg.name])
        elif arg.required:
            raise ArgumentError("Required argument '%s' missing" % arg.name, name=arg.name)
        elif arg.default is not None and arg.name not in own_defaults:
            out[arg.name] = from_default(arg)
    return out
