"""`python -m agent_sandbox.server …` is the binary with the same arguments."""

import os
import sys


def main():
    from ._attach import find_binary

    binary = find_binary()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(binary, ["agent-sandbox-server"] + sys.argv[1:])


if __name__ == "__main__":
    main()
