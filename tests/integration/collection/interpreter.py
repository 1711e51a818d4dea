# SPDX-License-Identifier: Apache-2.0
"""A Python that starts modules at once: their libraries are already imported, and nothing is compiled twice.

A module of Ansible that calls the API server needs a second of CPU, because it imports `kubernetes`, and compiles the
parts of Ansible that its archive contains. Here a process imports that library once. For each module it forks a child
with the standard streams, the folder and the environment of the program that Ansible started; the child runs the
module. Nothing of Ansible is imported before the fork, because each module brings its own. Compiled code is cached by
its source, also for hosts made of files (machine.py). A program that is an argument, and does not come through the
pipe, runs in an ordinary Python.

    interpreter.py serve SOCKET
    interpreter.py module < MODULE
"""

from __future__ import annotations

import atexit
import functools
import gc
import hashlib
import marshal
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import traceback
import types
import zipimport
from collections.abc import Callable
from pathlib import Path

COMPILED = Path(__file__).resolve().parents[3] / "build" / "pycache" / "modules"

#: The client, which starts for each module and therefore imports almost nothing.
CLIENT = """#!{python} -IS
import sys
if len(sys.argv) > 1:
    import os
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
import _socket, array, marshal, posix
umask = posix.umask(0)
posix.umask(umask)
call = marshal.dumps((posix.getcwd(), dict(posix.environ), umask))
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({socket!r})
head = len(call).to_bytes(4, "big")
server.sendmsg([head], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
server.sendall(call)
status = server.recv(1)
posix._exit(status[0] if status else 1)
"""


@functools.cache
def interpreter() -> str:
    """Start the server, and return the program that Ansible uses as Python. The server ends with this process."""
    folder = Path(tempfile.mkdtemp(prefix="outoftree-python-"))
    path, client = folder / "socket", folder / "python"
    client.write_text(CLIENT.format(python=sys.executable, socket=str(path)))
    client.chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, __file__, "serve", str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdout is not None and server.stdout.readline() == b"ready\n"
    atexit.register(_end, server, folder)
    return str(client)


def _end(server: subprocess.Popen[bytes], folder: Path) -> None:
    server.kill()
    server.wait()
    shutil.rmtree(folder, ignore_errors=True)


def serve(path: str) -> None:
    """Fork for each connection, until standard input ends, which happens when the process that started this one ends.
    """
    import kubernetes.dynamic  # noqa: F401  (what is imported is the point)
    import yaml  # noqa: F401

    gc.freeze()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen(64)
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [], 1)
        if sys.stdin in ready:
            return
        if listening in ready:
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                answer(connection)
            connection.close()
        reap()


def reap() -> None:
    """Wait for ended children, so that their CPU seconds are counted."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def answer(connection: socket.socket) -> None:
    """Take the client's place in a forked process: run the module, and end with its status."""
    head, streams, _, _ = socket.recv_fds(connection, 4, 3)
    folder, environment, umask = marshal.loads(_read(connection, int.from_bytes(head, "big")))
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    os.chdir(folder)
    os.umask(umask)
    os.environb.clear()
    os.environb.update(environment)
    tempfile.tempdir = None
    status = 0
    try:
        run_module()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    connection.send(bytes([status & 255]))
    os._exit(status & 255)


def run_module() -> None:
    """Run what is on standard input, as Python does."""
    zipimport._compile_source = functools.partial(compiled, zipimport._compile_source)  # type: ignore[attr-defined]
    sys.argv = [""]
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(sys.stdin.buffer.read(), "<stdin>", "exec"), module.__dict__)


def compiled(compile_source: Callable[[str, bytes], types.CodeType], name: str, source: bytes) -> types.CodeType:
    """Return the compiled code of a part of an archive, cached; zipimport itself would compile each part twice."""
    path = COMPILED / f"{sys.implementation.cache_tag}-{hashlib.sha256(source).hexdigest()}"
    try:
        code: types.CodeType = marshal.loads(path.read_bytes())
    except (OSError, ValueError, EOFError):
        code = compile_source(name, source)
        COMPILED.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}-{os.getpid()}-{socket.gethostname()}")
        new.write_bytes(marshal.dumps(code))
        new.rename(path)
    return code


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            os._exit(1)
        data += more
    return data


if __name__ == "__main__":
    serve(sys.argv[2]) if sys.argv[1] == "serve" else run_module()
