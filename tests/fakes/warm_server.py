"""A program that has imported the gateway, and forks itself for each command: see `warm_start`."""

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import sys
import threading
import time
from typing import Any

import gateway.operate.cli

# What `holdfast run` imports only when it needs it, and nearly every test makes it need.
LATER = ("agent.providers.openai.chat", "gateway.http.openapi.document", "gateway.runner")


def import_the_gateway() -> None:
    """Import all commands, and keep the garbage collector from looking at them again."""
    commands = gateway.operate.cli
    for name in pkgutil.iter_modules(commands.__path__, f"{commands.__name__}."):
        importlib.import_module(name.name)
    for each in LATER:
        importlib.import_module(each)
    gc.freeze()


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork for each request. Returns the request in the child, and None when no more will come."""
    reports: dict[int, tuple[int, int]] = {}  # of a pidfd: the pid, and where its end is reported
    with selectors.DefaultSelector() as ready:
        ready.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is not control:
                    ready.unregister(key.fd)
                    _report_end(key.fd, *reports.pop(key.fd))
                    continue
                message, given, _, _ = socket.recv_fds(control, 2**20, 4)
                if not message:
                    return None
                report, *standard = given
                request: dict[str, Any] = json.loads(message)
                for each in request["imports"]:
                    importlib.import_module(each)
                if not (pid := os.fork()):
                    for place, each in enumerate(standard):
                        os.dup2(each, place)
                    others = {fd for pidfd, (_, fd) in reports.items() for fd in (pidfd, fd)}
                    for each in {report, *standard, *others}:
                        os.close(each)
                    control.close()
                    return request
                for each in standard:
                    os.close(each)
                os.write(report, b"%d\n" % pid)
                pidfd = os.pidfd_open(pid)
                reports[pidfd] = (pid, report)
                ready.register(pidfd, selectors.EVENT_READ)


def _report_end(pidfd: int, pid: int, report: int) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(BrokenPipeError):  # its test has ended
        os.write(report, b"%d\n" % code)
    os.close(report)
    os.close(pidfd)


def become(request: dict[str, Any]) -> None:
    """Take on everything that a process gets from its parent."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()  # noqa: TID251 - those of the server are not the command's
    os.environ.update(request["env"])  # noqa: TID251 - as above
    time.tzset()
    os.chdir(request["cwd"])
    sys.argv = request["argv"]
    sys.orig_argv = [sys.executable, *sys.argv]
    if added := request["env"].get("PYTHONPATH"):
        sys.path[1:1] = added.split(os.pathsep)
    sys.path[0] = os.path.dirname(sys.argv[0])  # noqa: PTH120 - as the interpreter sets it
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc] # noqa: SIM115
    for number, name, errors in ((1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        buffered = number == 1 and not os.isatty(number)
        stream = open(number, "w", errors=errors, closefd=False)  # noqa: SIM115
        stream.reconfigure(line_buffering=not buffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def run() -> int:
    """Run the program; gives the exit code."""
    try:
        gateway.operate.cli.main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    except BaseException:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def end(code: int) -> None:
    """End as the interpreter does, without taking apart the modules, which costs 50 ms."""
    threading._shutdown()  # type: ignore[attr-defined] # threads and executors
    atexit._run_exitfuncs()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import_the_gateway()
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        become(asked)
        end(run())
