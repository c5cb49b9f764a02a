# Runs cells for a context: reads them from descriptor 4, tells results on 5.
# Standard output and error belong to the cells; a mark ends each cell's part.
import __future__
import ast
import base64
import builtins
import io
import json
import linecache
import os
import signal
import sys
import threading
import traceback
import types
from importlib import util as import_util

REQUESTS, REPLIES = 4, 5
LONGEST_TEXT = 1 << 20
FUTURES = 0
for _name in __future__.all_feature_names:
    FUTURES |= getattr(__future__, _name).compiler_flag

REPRS = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_latex_": "text/latex",
    "_repr_json_": "application/json",
    "_repr_javascript_": "application/javascript",
    "_repr_pdf_": "application/pdf",
}


class Driver:
    def __init__(self):
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.buffer = bytearray()
        self.running = False
        self.count = 0
        self.futures = 0
        self.loop = None
        self.main = types.ModuleType("__main__")
        self.main.__dict__["__builtins__"] = builtins

    def prepare(self):
        for fd in (REQUESTS, REPLIES):
            os.set_inheritable(fd, False)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
        os.environ.setdefault("MPLBACKEND", "Agg")
        sys.modules["__main__"] = self.main
        sys.meta_path.insert(0, self)
        builtins.display = self.display
        signal.signal(signal.SIGINT, self.interrupted)

    def interrupted(self, number, frame):
        if self.running:
            raise KeyboardInterrupt

    # What is read and written.

    def field(self):
        while True:
            at = self.buffer.find(b"\0")
            if at >= 0:
                got = bytes(self.buffer[:at])
                del self.buffer[: at + 1]
                return got.decode("utf-8", "surrogateescape")
            piece = os.read(REQUESTS, 1 << 16)
            if not piece:
                os._exit(0)
            self.buffer += piece

    def tell(self, **message):
        self.write(REPLIES, json.dumps(message, allow_nan=False).encode() + b"\n")

    def write(self, fd, data):
        with self.lock:
            while data:
                data = data[os.write(fd, data) :]

    def mark(self, mark):
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            try:
                stream.flush()
            except Exception:
                pass
        for fd in (1, 2):
            try:
                self.write(fd, mark.encode())
            except OSError:
                pass

    # What is shown.

    def bundle(self, value, main=False):
        data = {}
        try:
            found = getattr(type(value), "_repr_mimebundle_", None)
            found = found and value._repr_mimebundle_()
            if isinstance(found, tuple):
                found = found[0]
            if isinstance(found, dict):
                data.update(found)
        except Exception:
            pass
        if not isinstance(value, type):
            for method, mime in REPRS.items():
                if mime in data or not hasattr(type(value), method):
                    continue
                try:
                    shown = getattr(value, method)()
                except Exception:
                    continue
                if isinstance(shown, tuple):
                    shown = shown[0]
                if shown is not None:
                    data[mime] = shown
        if "text/plain" not in data:
            data["text/plain"] = self.text(value)
        out = {}
        for mime, shown in data.items():
            if isinstance(shown, (bytes, bytearray)):
                shown = base64.b64encode(shown).decode()
            elif isinstance(shown, str) and len(shown) > LONGEST_TEXT and mime == "text/plain":
                shown = shown[:LONGEST_TEXT] + "\u2026"
            try:
                json.dumps(shown, allow_nan=False)
            except (TypeError, ValueError):
                continue
            out[str(mime)] = shown
        if main:
            out["is_main_result"] = True
        return out

    def text(self, value):
        try:
            return repr(value)
        except Exception as e:
            return "<%s that cannot be shown: %s>" % (type(value).__name__, type(e).__name__)

    def show(self, value, main=False):
        if self.is_figure(value):
            self.figure(value, main)
        else:
            self.tell(type="result", data=self.bundle(value, main))

    def display(self, *values, **ignored):
        for value in values:
            self.show(value)

    def is_figure(self, value):
        figure = sys.modules.get("matplotlib.figure")
        return figure is not None and isinstance(value, figure.Figure)

    def figure(self, figure, main=False):
        image = io.BytesIO()
        figure.savefig(image, format="png", bbox_inches="tight")
        data = {"image/png": base64.b64encode(image.getvalue()).decode(), "text/plain": self.text(figure)}
        if main:
            data["is_main_result"] = True
        self.tell(type="result", data=data)
        plt = sys.modules.get("matplotlib.pyplot")
        if plt is not None:
            plt.close(figure)

    def figures(self):
        plt = sys.modules.get("matplotlib.pyplot")
        if plt is not None and hasattr(plt, "get_fignums"):
            for number in plt.get_fignums():
                self.figure(plt.figure(number))

    def find_spec(self, name, path=None, target=None):
        """Sees to it that matplotlib's show() shows figures as results."""
        if name != "matplotlib.pyplot":
            return None
        sys.meta_path.remove(self)
        spec = import_util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def show(*args, **kwargs):  # matplotlib writes to it: no method
            self.figures()

        def exec_module(module):
            execute(module)
            module.show = show

        spec.loader.exec_module = exec_module
        return spec

    # What is run.

    def await_(self, coroutine):
        import asyncio

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except KeyboardInterrupt:
            task.cancel()
            try:
                self.loop.run_until_complete(task)
            except BaseException:
                pass
            raise

    def evaluate(self, tree, name, mode):
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | self.futures
        code = compile(tree, name, mode, flags=flags, dont_inherit=True)
        self.futures |= code.co_flags & FUTURES
        value = eval(code, self.main.__dict__)
        if code.co_flags & 0x80:  # a coroutine: there was an await
            value = self.await_(value)
        return value

    def cell(self, code):
        name = "<cell %d>" % self.count
        linecache.cache[name] = (len(code), None, (code + "\n").splitlines(True), name)
        tree = compile(code, name, "exec", flags=ast.PyCF_ONLY_AST | self.futures, dont_inherit=True)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        if tree.body:
            self.evaluate(tree, name, "exec")
        if last is None:
            return
        value = self.evaluate(last, name, "eval")
        if value is not None and not code.rstrip().endswith(";"):
            self.main.__dict__["_"] = value
            self.show(value, main=True)

    def run(self, code):
        try:
            self.running = True
            self.cell(code)
            self.figures()
            return 0
        except BaseException as e:
            self.running = False
            self.fail(e)
            return 1
        finally:
            self.running = False

    def fail(self, error):
        at = error.__traceback__
        while at is not None and not at.tb_frame.f_code.co_filename.startswith("<cell "):
            at = at.tb_next
        try:
            value = str(error)
        except Exception:
            value = ""
        try:
            lines = traceback.format_exception(type(error), error, at)
        except Exception:
            lines = traceback.format_exception_only(type(error), None)
        text = "".join(lines)
        self.tell(type="error", name=type(error).__name__, value=value[:LONGEST_TEXT], traceback=text[:LONGEST_TEXT])

    def serve(self):
        self.prepare()
        while True:
            try:
                mark, code = self.field(), self.field()
                self.count += 1
                status = self.run(code)
                if os.getpid() != self.pid:  # the code forked and came back
                    os._exit(status)
                self.mark(mark)
                self.tell(type="done", status=status)
            except KeyboardInterrupt:
                continue


Driver().serve()
