"""Entry of the worker process: the server runs this file, with its pipes at 3 and 4."""

import importlib.util
import os
import sys

PACKAGE = "agent_sandbox.server"
HERE = os.path.dirname(os.path.abspath(__file__))


class Finder:
    """Serves agent_sandbox.server from here, whatever is installed under that name.

    The rest of agent_sandbox, the client, stays what it is. Where nothing
    provides it, it is an empty package.
    """

    def __init__(self, folder):
        self._folder = folder

    def find_spec(self, name, path=None, target=None):
        if name == "agent_sandbox":
            return self._client(name)
        if name == PACKAGE or name.startswith(PACKAGE + "."):
            return self.spec(name)
        return None

    def spec(self, name):
        base = os.path.join(self._folder, *name.split("."))
        if os.path.isdir(base):
            return importlib.util.spec_from_file_location(
                name, os.path.join(base, "__init__.py"), submodule_search_locations=[base]
            )
        if os.path.isfile(base + ".py"):
            return importlib.util.spec_from_file_location(name, base + ".py")
        return None

    def _client(self, name):
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, None)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = Parent(spec.loader)
                return spec
        return importlib.util.spec_from_loader(name, Parent(None), is_package=True)


class Parent:
    """Loads the package above ours, which was imported without it."""

    def __init__(self, loader):
        self._loader = loader

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec) if hasattr(self._loader, "create_module") else None

    def exec_module(self, module):
        module.server = sys.modules[PACKAGE]
        if self._loader is not None:
            self._loader.exec_module(module)


def main():
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    if sys.path and os.path.abspath(sys.path[0]) == HERE:
        del sys.path[0]
    sys.argv = ["agent-sandbox-server", "serve"]
    finder = Finder(HERE)
    sys.meta_path.insert(0, finder)

    # The package is entered without its parent: importing the client takes
    # longer than everything else here, and most command files need none of it.
    spec = finder.spec(PACKAGE)
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)

    from agent_sandbox.server._worker import Worker

    worker = Worker(3, 4, folder=HERE)
    worker.begin()
    worker.main()


if __name__ == "__main__":
    main()
