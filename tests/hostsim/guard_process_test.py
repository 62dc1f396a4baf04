#!/usr/bin/env python3
"""tandem-guard with a made-up /proc and real processes: who is killed, how soon, and who is not."""
import fcntl
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
FLOORS = 512
BOOT = 32
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
                 "acted_ms", "action", "reason", "role", "refused", "failed", "zero")
        return dict(zip(names, struct.unpack_from("<QIIIIqqqQqIIIIII", self.page, REPORT)))

    def tell_floors(self, yellow, orange, red, black, calm_ms=300_000):
        """Ways in, in GiB; the ways out half a GiB above."""
        gib = 1 << 30
        numbers = [int(n * gib) for floor in (yellow, orange, red) for n in (floor, floor + 0.5)]
        numbers += [int(black * gib), gib, calm_ms]
        sequence = struct.unpack_from("<Q", self.page, FLOORS)[0] | 1
        struct.pack_into("<Q", self.page, FLOORS, sequence)
        struct.pack_into("<9q", self.page, FLOORS + 8, *numbers)
        struct.pack_into("<Q", self.page, FLOORS, sequence + 1)

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


def one_guard_a_page():
    w = World()
    w.start_guard()
    command = [BIN, "--root", w.root, "--page", w.page_path, "--blackbox", w.root / "other"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    check(done.returncode == 3 and f"process {w.guard.pid} guards" in done.stderr, "a second guard leaves, and says who is there")
    w.guard.kill()
    w.guard.wait()
    w.start_guard()
    check(w.guard.poll() is None, "the place is free when its holder is gone")
    w.end()


def floors_of_the_page_are_followed():
    w = World()
    w.start_guard()
    w.available(18)
    time.sleep(0.3)
    check(w.level() == "green", "18 GiB is not yet yellow")
    optional = w.process(STUBBORN)
    w.tell("optional", optional.pid)
    w.pinned(2)
    w.tell_floors(yellow=30, orange=29, red=40, black=27)  # out of order
    time.sleep(0.4)
    check(optional.poll() is None and w.level() == "green", "floors out of order are not followed")
    w.tell_floors(yellow=30, orange=29, red=28, black=27, calm_ms=6000)
    check(w.wait_for(lambda: optional.poll() is not None, 2), "new floors count from the next look on: black kills")
    w.available(40)
    check(w.wait_for(lambda: w.level() == "red", 2) and w.wait_for(lambda: w.level() == "green", 12), "and so does the calm time")
    status, lines = w.end()
    check(status == 0 and "floors=refused" in lines and "floors=followed" in lines, "the black box has both")


def a_host_that_cannot_be_seen_ages_the_heartbeat():
    w = World()
    w.start_guard()
    os.truncate(w.meminfo, 0)
    time.sleep(0.3)
    before = w.report()["sampled_ms"]
    time.sleep(1.5)
    check(w.report()["sampled_ms"] == before, "a look that sees nothing is no sign of life")
    w.available(60)
    check(w.wait_for(lambda: w.report()["sampled_ms"] > before), "until it sees again")
    _, lines = w.end()
    check(re.search(r"blind_ms=[1-9]", lines) is not None, "the black box tells for how long")


def a_page_of_another_boot_is_emptied():
    w = World()
    (w.root / "proc/sys/kernel/random").mkdir(parents=True)
    (w.root / "proc/sys/kernel/random/boot_id").write_text("11111111-2222-3333-4444-555555555555\n")
    w.start_guard()
    other = w.process()
    w.tell("optional", other.pid)
    check(w.pinned(2), "of this boot it is followed")
    w.guard.kill()
    w.guard.wait()
    w.start_guard()
    check(w.pinned(2), "also by the next guard")
    w.guard.kill()
    w.guard.wait()
    (w.root / "proc/sys/kernel/random/boot_id").write_text("99999999-2222-3333-4444-555555555555\n")
    w.start_guard()
    w.available(1)
    time.sleep(0.5)
    check(other.poll() is None and w.report()["pinned"] == 0, "after a reboot nobody is what an old page says")
    w.end()


def nothing_stops_it_but_term():
    w = World()
    read_end, write_end = os.pipe()
    w.guard = subprocess.Popen([BIN, "--root", w.root, "--page", w.page_path, "--blackbox", w.blackbox], stderr=write_end)
    os.close(write_end)
    w.wait_for(lambda: w.page_path.exists() and w.page_path.stat().st_size == 4096)
    with open(w.page_path, "r+b") as file:
        w.page = mmap.mmap(file.fileno(), 4096)
    w.wait_for(lambda: w.report()["sampled_ms"] > 0)
    os.close(read_end)  # its log is gone
    w.guard.send_signal(signal.SIGHUP)
    optional = w.process(STUBBORN)
    w.tell("optional", optional.pid)
    w.pinned(2)
    w.available(1)
    check(w.wait_for(lambda: optional.poll() is not None, 2), "without a log, and after SIGHUP, it works")
    time.sleep(0.3)
    check(w.guard.poll() is None, "and lives")
    w.guard.terminate()
    check(w.guard.wait(5) == 0, "TERM ends it in order")
    w.guard = None
    w.end()


def a_log_that_nobody_reads_does_not_stop_the_black_box():
    w = World()
    w.start_guard()
    fcntl.fcntl(w.guard.stderr, fcntl.F_SETPIPE_SZ, 4096)
    for index in range(60):  # each change of floors is a line in the log, which nobody reads: more than the pipe holds
        w.tell_floors(yellow=30 + index % 7, orange=29, red=28, black=27)
        time.sleep(0.11)

    def lines():
        return w.blackbox.read_bytes().rstrip(b"\0").count(b"\n")

    before = lines()
    check(before > 50, f"every change is in the black box ({before} lines)")
    check(w.wait_for(lambda: lines() > before + 1, 4), "and it goes on")
    w.end()


def it_makes_no_page_fault():
    w = World()
    w.start_guard()
    optional = w.process()
    w.tell("optional", optional.pid)
    w.pinned(2)

    def faults():
        fields = pathlib.Path(f"/proc/{w.guard.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[7]), int(fields[9])  # minor, major

    locked = re.search(r"VmLck:\s+(\d+)", pathlib.Path(f"/proc/{w.guard.pid}/status").read_text())
    time.sleep(1.2)  # every path once
    for gib in (19, 60):
        w.available(gib)
        time.sleep(0.3)
    before = faults()
    for i in range(20):
        w.available(60 - i)
        w.tell_floors(yellow=20 + i % 2, orange=12, red=8, black=4)
        time.sleep(0.1)
    w.available(1)  # the kill path too
    w.wait_for(lambda: optional.poll() is not None, 2)
    time.sleep(0.3)
    after = faults()
    if int(locked.group(1)) == 0:
        print("     (memory cannot be locked here: faults are not judged)")
    else:
        check(after == before, f"no page fault in three seconds, a kill included ({before} {after})")
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
    check(private() < 4096, "and small")
    w.end()


black_kills_the_optional_only()
red_terminates_then_kills()
what_is_not_what_it_says_is_not_touched()
an_orphan_of_the_group_is_found()
a_loading_default_goes_at_black()
it_starts_again_where_it_was()
bad_starts()
it_does_not_grow()
one_guard_a_page()
floors_of_the_page_are_followed()
a_host_that_cannot_be_seen_ages_the_heartbeat()
a_page_of_another_boot_is_emptied()
nothing_stops_it_but_term()
a_log_that_nobody_reads_does_not_stop_the_black_box()
it_makes_no_page_fault()
print(f"{len(FAILURES)} failures")
sys.exit(1 if FAILURES else 0)
