"""The built-in endpoints are served by the binary; nothing of them is Python.

The module exists because template code may import it. Routes of one's own are
registered with `default_table()`.
"""

from .router import default_table

__all__ = ["default_table"]
