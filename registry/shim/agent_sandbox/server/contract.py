"""The facts both sides of the HTTP contract agree on."""

from .types import ARGUMENT_TYPES, CapabilityGroup

API_VERSION = 2

__all__ = ["API_VERSION", "ARGUMENT_TYPES", "CapabilityGroup"]
