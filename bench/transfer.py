"""Times uploads and downloads by the published client.

Reads one JSON request a line, {"op", "url", "path", "bytes"}, and answers each with {"seconds"} or {"error"}.
It stays one process for all servers, so that starting Python is in no figure.
"""

import json
import sys
import time

from agent_sandbox.api import ServerClient

for line in sys.stdin:
    ask = json.loads(line)
    files = ServerClient(ask["url"]).files
    try:
        if ask["op"] == "upload":
            data = bytes(ask["bytes"])
            begin = time.perf_counter()
            files.upload_sync(ask["path"], data)
            seconds = time.perf_counter() - begin
        else:
            begin = time.perf_counter()
            got = len(files.download_sync(ask["path"]))
            seconds = time.perf_counter() - begin
            if got != ask["bytes"]:
                raise ValueError(f"downloaded {got} bytes, want {ask['bytes']}")
        answer = {"seconds": seconds}
    except Exception as e:  # the driver reports it beside the row
        answer = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps(answer), flush=True)
