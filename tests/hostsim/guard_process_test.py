#!/usr/bin/env python3
"""tandem-guard with a made-up /proc and real processes: who is killed, how soon, and who is not."""
import mmap
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

BIN = pathlib.Path(os.environ["TANDEM_BIN_DIR"]) / "tandem-guard"
TENANT = {"default": 64, "optional": 128}  # offsets of the control page
REPORT = 256
GIB_KB = 1 << 20
TOTAL = int(121.7 * GIB_KB)
LEVELS = ["green", "yellow", "orange", "red", "black"]
# A process that ends on TERM, and one that does not.
POLITE = ["sleep", "1000"]
STUBBORN = [sys.executable, "-c", "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "print('up', flush=True)\ntime.sleep(1000)"]


def start_ticks(pid):
    text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return int(text[text.rindex(")") + 2:].split()[19])


class World:
    def __init__(self):
        self.dir = tempfile.TemporaryDirectory(prefix="tandem_guard_")
        self.root = pathlib.Path(self.dir.name)
        (self.root / "proc").mkdir()
        self.meminfo = self.root / "proc/meminfo"
        self.page_path = self.root / "page"
        self.blackbox = self.root / "blackbox"
        self.children = []
        self.available(60)
        self.guard = None

    def available(self, gib):
        text = f"MemTotal: {TOTAL} kB\nMemFree: {int(gib * GIB_KB)} kB\nMemAvailable: {int(gib * GIB_KB)} kB\n"
        if not self.meminfo.exists():
            self.meminfo.write_text(text.ljust(200))
        fd = os.open(self.meminfo, os.O_WRONLY)
        os.pwrite(fd, text.ljust(200).encode(), 0)  # in place and in one go: the guard keeps it open
        os.close(fd)

    def start_guard(self):
        self.guard = subprocess.Popen([BIN, "--root", self.root, "--page", self.page_path, "--blackbox", self.blackbox],
                                      stderr=subprocess.PIPE)
        self.wait_for(lambda: self.page_path.exists() and self.page_path.stat().st_size == 4096)
        with open(self.page_path, "r+b") as file:
            self.page = mmap.mmap(file.fileno(), 4096)
        self.wait_for(lambda: self.report()["sampled_ms"] > 0)

    def wait_for(self, condition, seconds=10.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return True
            time.sleep(0.002)
        return False

    def process(self, command=POLITE):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        if command is STUBBORN:
            child.stdout.readline()
        self.children.append(child)
        return child

    def tell(self, role, pid, ticks=None, uid=None, loading=0):
        at = TENANT[role]
        sequence = struct.unpack_from("<Q", self.page, at)[0] | 1
        struct.pack_into("<Q", self.page, at, sequence)
        struct.pack_into("<iIQIi", self.page, at + 8, pid, os.getuid() if uid is None else uid,
                         start_ticks(pid) if ticks is None else ticks, loading, 0)
        struct.pack_into("<Q", self.page, at, sequence + 1)

    def report(self):
        names = ("sequence", "level", "signals", "shed", "pinned", "sampled_ms", "available", "fall", "actions",
                 "acted_ms", "action", "reason", "role", "refused")
        return dict(zip(names, struct.unpack_from("<QIIIIqqqQqIIII", self.page, REPORT)))

    def level(self):
        return LEVELS[self.report()["level"]]

    def pinned(self, mask):
        return self.wait_for(lambda: self.report()["pinned"] == mask)

    def end(self):
        status = None
        if self.guard:
            self.guard.send_signal(signal.SIGTERM)
            status = self.guard.wait(10)
            self.errors = self.guard.stderr.read().decode()
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
        lines = self.blackbox.read_bytes().rstrip(b"\0").decode() if self.blackbox.exists() else ""
        self.dir.cleanup()
        return status, lines


FAILURES = []


def check(condition, text):
    print(("ok   " if condition else "FAIL ") + text)
    if not condition:
        FAILURES.append(text)


def black_kills_the_optional_only():
    w = World()
    w.start_guard()
    main, optional = w.process(), w.process(STUBBORN)
    w.tell("default", main.pid)
    w.tell("optional", optional.pid)
    check(w.pinned(3), "both processes are pinned")
    time.sleep(0.3)
    check(optional.poll() is None and w.level() == "green", "nothing happens with memory to spare")
    w.available(3.9)
    began = time.monotonic()
    gone = w.wait_for(lambda: optional.poll() is not None, 2)
    took = time.monotonic() - began
    check(gone and optional.returncode == -signal.SIGKILL, "black kills the optional model")
    check(took < 0.3, f"within a look ({took * 1000:.0f} ms)")
    time.sleep(0.5)
    check(main.poll() is None, "the default model lives")
    check(w.level() == "black" and w.report()["pinned"] == 1, "the page tells it")
    status, lines = w.end()
    check(status == 0, "it ends in order")
    check("action=kill role=optional reason=black" in lines, "the black box has the kill")
    check("level=black" in lines, "and the level")
    check("action=kill" in w.errors, "and the log too")
    numbers = [int(n) for n in re.findall(r"^(\d{12}) ", lines, re.M)]
    check(numbers == list(range(len(numbers))) and len(numbers) >= 3, "lines are numbered")
    check(all(len(line) == 511 for line in lines.splitlines()), "and of one size")


def red_terminates_then_kills():
    w = World()
    w.start_guard()
    polite, optional = w.process(), w.process(STUBBORN)
    w.tell("default", polite.pid)
    w.tell("optional", optional.pid)
    w.pinned(3)
    for step in range(40):  # 2 GiB/s from 14 to 6 GiB: the fall is the second signal
        w.available(14 - step * 0.2)
        time.sleep(0.1)
        if w.report()["actions"]:
            break
    check(w.level() == "red", "a fall below eight is red")
    check(optional.poll() is None, "TERM comes first")
    w.available(7.9)
    check(w.wait_for(lambda: optional.poll() is not None, 5), "KILL follows")
    check(optional.returncode == -signal.SIGKILL and polite.poll() is None, "and nobody else is touched")
    _, lines = w.end()
    check(lines.find("action=terminate") < lines.find("action=kill role=optional reason=grace_over"), "in this order")


def what_is_not_what_it_says_is_not_touched():
    for name, change in (("another start time", {"ticks": 1}), ("another user", {"uid": 65123})):
        w = World()
        w.start_guard()
        other = w.process()
        w.tell("optional", other.pid, **change)
        w.wait_for(lambda: w.report()["refused"] == 1)
        check(w.report()["refused"] == 1 and w.report()["pinned"] == 0, f"{name}: refused, and told")
        w.available(1)
        time.sleep(0.5)
        check(other.poll() is None, f"{name}: lives through black")
        w.end()
    w = World()
    w.start_guard()
    grouped = subprocess.Popen(POLITE)  # in this test's own group
    w.children.append(grouped)
    w.tell("optional", grouped.pid)
    w.wait_for(lambda: w.report()["refused"] == 1)
    check(w.report()["refused"] == 1, "a process in somebody's group: refused")
    w.available(1)
    time.sleep(0.3)
    check(grouped.poll() is None, "a process in somebody's group: lives")
    w.end()


def an_orphan_of_the_group_is_found():
    w = World()
    w.start_guard()
    # The leader ends on TERM; its child, in the same group, ignores it and holds the memory.
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(1000)"
    leader = w.process([sys.executable, "-c", "import subprocess, sys, time\n"
                        f"c = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE)\n"
                        "c.stdout.readline()\nprint(c.pid, flush=True)\ntime.sleep(1000)"])
    orphan = int(leader.stdout.readline())
    other = w.process(STUBBORN)
    w.tell("optional", leader.pid)
    w.pinned(2)
    leader.terminate()
    leader.wait()
    time.sleep(0.4)
    check(w.report()["pinned"] == 2, "a group without its leader is alive still")
    w.available(1)

    def gone():
        try:
            return " Z " in pathlib.Path(f"/proc/{orphan}/stat").read_text()
        except OSError:
            return True

    check(w.wait_for(gone, 2), "its orphan is killed at black")
    check(w.pinned(0), "then nothing of it lives")
    check(other.poll() is None, "and nobody else is touched")
    w.end()


def a_loading_default_goes_at_black():
    w = World()
    w.start_guard()
    main = w.process()
    w.tell("default", main.pid, loading=1)
    w.pinned(1)
    w.available(2)
    check(w.wait_for(lambda: main.poll() is not None, 2), "a loading default model is killed at black")
    w.end()


def it_starts_again_where_it_was():
    w = World()
    w.start_guard()
    first = w.process(STUBBORN)
    w.tell("optional", first.pid)
    w.pinned(2)
    w.guard.kill()  # the guard itself dies
    w.guard.wait()
    w.start_guard()
    check(w.pinned(2), "a new guard finds the page")
    w.available(1)
    check(w.wait_for(lambda: first.poll() is not None, 2), "and works")
    _, lines = w.end()
    numbers = [int(n) for n in re.findall(r"^(\d{12}) ", lines, re.M)]
    check(numbers == list(range(len(numbers))), "the black box goes on counting")


def bad_starts():
    w = World()
    w.page_path.write_bytes(b"x" * 4096)
    done = subprocess.run([BIN, "--root", w.root, "--page", w.page_path, "--blackbox", w.blackbox],
                          capture_output=True, text=True, timeout=10)
    check(done.returncode == 2 and "no control page" in done.stderr, "a foreign page is refused")
    done = subprocess.run([BIN, "--root", w.root / "nowhere", "--page", w.page_path, "--blackbox", w.blackbox],
                          capture_output=True, text=True, timeout=10)
    check(done.returncode == 2 and "meminfo" in done.stderr, "no meminfo, no guard")
    check(subprocess.run([BIN], capture_output=True, timeout=10).returncode == 2, "no arguments, no guard")
    w.end()


def it_does_not_grow():
    w = World()
    w.start_guard()
    optional = w.process()
    w.tell("optional", optional.pid)
    w.pinned(2)

    def private():
        text = pathlib.Path(f"/proc/{w.guard.pid}/smaps_rollup").read_text()
        return int(re.search(r"Private_Dirty: +(\d+)", text).group(1))

    time.sleep(1.2)  # every path once
    before = private()
    for i in range(30):
        w.available(60 - i)
        time.sleep(0.1)
    check(private() <= before, f"no page more after three seconds ({before} kB)")
    check(private() < 16384, "and small")
    w.end()


black_kills_the_optional_only()
red_terminates_then_kills()
what_is_not_what_it_says_is_not_touched()
an_orphan_of_the_group_is_found()
a_loading_default_goes_at_black()
it_starts_again_where_it_was()
bad_starts()
it_does_not_grow()
print(f"{len(FAILURES)} failures")
sys.exit(1 if FAILURES else 0)
