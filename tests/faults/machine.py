"""A machine inside of this one: its own processes, files and service manager, which is a real systemd.

It sees this machine's files through a layer that takes all its writes, and its network is ours, so
fakes that listen on loopback can be reached. Needs root and a kernel with cgroup 2.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gateway.config.loader import read_environment

ROOT = Path(__file__).parents[2]
SYSTEMD = Path("/lib/systemd/systemd")
BOOTED_WITHIN = 60.0
DONE_WITHIN = 120.0

_BOOT = r"""
set -eu
place=$1 source=$2 group=$3
mount --make-rprivate /
mount -t tmpfs -o size=2g tmpfs "$place"
mkdir "$place/upper" "$place/work" "$place/root"
mount -t overlay -o "lowerdir=/,upperdir=$place/upper,workdir=$place/work" overlay "$place/root"
root=$place/root
# As a mount of its own it outlives that systemd empties /tmp when it starts.
mkdir -p "$root$source"
mount --bind "$source" "$root$source"
mount -o remount,bind,ro "$root$source"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for name in null zero full random urandom tty; do
    touch "$root/dev/$name"
    mount --bind "/dev/$name" "$root/dev/$name"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs tmpfs "$root/dev/shm"
: > "$root/etc/machine-id"
rm -f "$root"/etc/systemd/system/*.wants/*
for made in etc/holdfast var/lib/holdfast var/lib/private/holdfast root/.config/holdfast root/.local/share/holdfast
do rm -rf "$root/$made"; done
hostname machine
cd "$root"
mkdir run/before
pivot_root . run/before
umount -l /run/before
rmdir /run/before
mount --make-rshared / # as systemd does on a machine of its own, and expects in any other
exec env -i container=holdfast PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=multi-user.target
"""


class Unbootable(Exception):
    """No such machine can be had here."""


class Machine:
    """A booted one; what is run in it belongs to it."""

    def __init__(self, init: int) -> None:
        self._init = init

    def run(
        self, *words: str, within: float = DONE_WITHIN, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as root of the machine; its outcome is the caller's to judge."""
        return subprocess.run(
            self._inside(*words), env=_clean(env), capture_output=True, text=True, timeout=within,
            check=False,
        )  # fmt: skip

    def popen(self, *words: str) -> subprocess.Popen[str]:
        """Start a command that is to go on for a while."""
        return subprocess.Popen(
            self._inside(*words),
            env=_clean(None),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def _inside(self, *words: str) -> tuple[str, ...]:
        spaces = ("-m", "-u", "-i", "-p", "-C", "-r", "-w")
        return ("nsenter", "-t", str(self._init), *spaces, "--", *words)


def _clean(env: dict[str, str] | None) -> dict[str, str]:
    path = read_environment().get("PATH", "")
    return {"PATH": path, "HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb", **(env or {})}


@contextlib.contextmanager
def booted() -> Iterator[Machine]:
    """Boot one, and leave nothing of it behind; raises `Unbootable`."""
    missing = [each for each in ("unshare", "nsenter", "pivot_root") if not shutil.which(each)]
    if os.geteuid() or missing or not SYSTEMD.exists():
        msg = f"needs root, systemd and the commands unshare, nsenter, pivot_root {missing or ''}"
        raise Unbootable(msg)
    group = _group()
    place = Path(tempfile.mkdtemp(prefix="holdfast-machine-", dir="/var/tmp"))
    spaces = ("--cgroup", "--mount", "--pid", "--fork", "--uts", "--ipc", "--kill-child")
    join = f'echo $$ > "{group}/cgroup.procs"; exec "$@"'
    boot = ("sh", "-c", _BOOT, "boot", str(place), str(ROOT), str(group))
    process = subprocess.Popen(
        ("sh", "-c", join, "join", "unshare", *spaces, *boot),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        yield _wait(process)
    finally:
        with contextlib.suppress(OSError):
            (group / "cgroup.kill").write_text("1")
        process.kill()
        process.communicate()
        place.rmdir()
        for below in sorted(group.rglob("*/"), reverse=True):
            _forget(below)
        _forget(group)


def _group() -> Path:
    for top in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if (top / "cgroup.controllers").exists():
            group = top / f"holdfast-machine-{os.getpid()}"
            try:
                group.mkdir()
            except OSError as error:
                raise Unbootable(str(error)) from error
            return group
    msg = "there is no cgroup 2 here"
    raise Unbootable(msg)


def _forget(group: Path) -> None:
    for _ in range(50):  # what was killed there must have gone first
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.1)
        else:
            return


def _wait(process: subprocess.Popen[bytes]) -> Machine:
    until = time.monotonic() + BOOTED_WITHIN
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    said = ""
    while time.monotonic() < until:
        if process.poll() is not None:
            raise Unbootable(process.communicate()[1].decode().strip())
        if init := children.read_text(encoding="ascii").split():
            machine = Machine(int(init[0]))
            said = machine.run("systemctl", "is-system-running").stdout.strip()
            if said in {"running", "degraded"}:
                return machine
        time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    msg = f"systemd did not come up: {said}"
    raise Unbootable(msg)
