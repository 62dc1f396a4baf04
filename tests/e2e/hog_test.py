#!/usr/bin/env python3
"""A real memory hog beside a real service: levels in order, the optional model slowed, stopped, and back.

The floors are set relative to what is available when the models are loaded, so that the hog needs few GiB and the
machine keeps KEEP of them. The hog has a hard cap, gives its memory back on SIGTERM and dies with this test. Other
work on the machine moves MemAvailable too: what it spoils is said so and tried again.

    hog_test.py                steps and collapse, some minutes
"""
import json
import mmap
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import support  # noqa: E402

GIB = 1 << 30
KEEP = 4 * GIB          # never less than this is available because of us
YELLOW, ORANGE, RED, BLACK = 1.6, 2.1, 2.6, 3.6  # GiB below what is available at rest
CALM_S = 10
HOG_MAX = int(5.5 * GIB)
LEVELS = ["green", "yellow", "orange", "red", "black"]
REASONS = ["red", "black", "its grace was over", "it was loading at black", "memory still fell"]
OPTIONAL = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"

HOG = r"""
import ctypes, mmap, os, resource, signal, sys, threading, time
cap = int(sys.argv[1])
libc = ctypes.CDLL(None)
libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[2]): sys.exit(1)
if sys.argv[3] == "stubborn": signal.signal(signal.SIGTERM, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_AS, (cap + (256 << 20),) * 2)
open("/proc/self/oom_score_adj", "w").write("1000")
CHUNK = 8 << 20
held, goal, rate = [], 0, 1 << 30
def serve():
    global goal, rate
    for line in sys.stdin:
        goal, rate = (int(n) for n in line.split())
        goal = min(goal, cap)
    os._exit(0)
threading.Thread(target=serve, daemon=True).start()
print("up", flush=True)
began, grown = time.monotonic(), 0
target = (0, 0)
while True:
    if target != (goal, rate):
        target, began, start = (goal, rate), time.monotonic(), len(held) * CHUNK
    now = min(goal, start + int((time.monotonic() - began) * rate)) if goal > start else goal
    while len(held) * CHUNK > max(now, 0): held.pop().close()
    while (len(held) + 1) * CHUNK <= now:
        block = mmap.mmap(-1, CHUNK)
        ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(block)), 1, CHUNK)
        held.append(block)
    time.sleep(0.002)
"""


def available():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no MemAvailable")


def at_rest(seconds=2.0):
    """The least of some seconds: builds beside us come and go."""
    end = time.monotonic() + seconds
    least = available()
    while time.monotonic() < end:
        time.sleep(0.05)
        least = min(least, available())
    return least


class Hog:
    def __init__(self, manner="polite"):
        self.child = subprocess.Popen([sys.executable, "-c", HOG, str(HOG_MAX), str(os.getpid()), manner], text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self.child.stdout.readline()

    def to(self, size, per_s=GIB):
        self.child.stdin.write(f"{int(size)} {int(per_s)}\n")
        self.child.stdin.flush()

    def leave(self):
        if self.child.poll() is None:
            self.child.terminate()
        try:
            self.child.wait(3)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait(10)
        self.child.stdin.close()
        self.child.stdout.close()


class Clients:
    """Threads that ask the default model without pause; every answer counts."""

    def __init__(self, service, count=2):
        self.service = service
        self.answers = 0
        self.failures = []
        self.slowest_s = 0.0
        self.end = threading.Event()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self):
        while not self.end.is_set():
            began = time.monotonic()
            try:
                answer = self.service.chat("Say hi.", max_tokens=4, temperature=0)
                failure = None if answer.status == 200 else repr(answer)
            except OSError as error:
                failure = repr(error)
            with self.lock:
                self.answers += 1
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                if failure:
                    self.failures.append(failure)

    def stop(self):
        self.end.set()
        for thread in self.threads:
            thread.join(60)


class Sampler:
    """MemAvailable every few milliseconds, and the guard's first kill."""

    def __init__(self, page):
        self.page = page
        self.before = report(page)["actions"]
        self.kill = None
        self.samples = []
        self.end = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.end.wait(0.004):
            self.samples.append((time.monotonic(), available()))
            if self.kill is None:
                now = report(self.page)
                if now["action"] == 1 and now["actions"] > self.before:
                    self.kill = now

    def stop(self):
        self.end.set()
        self.thread.join()


def report(page):
    """What the guard says (docs/formats/guard.md)."""
    names = ("level", "signals", "shed", "pinned", "sampled_ms", "available", "fall", "actions", "acted_ms", "action",
             "reason", "role")
    while True:
        before = struct.unpack_from("<Q", page, 256)[0]
        values = struct.unpack_from("<IIIIqqqQqIII", page, 264)
        if before % 2 == 0 and struct.unpack_from("<Q", page, 256)[0] == before:
            return dict(zip(names, values))


class HogTest(unittest.TestCase):
    def setUp(self):
        for name in (OPTIONAL, support.SMOLLM.name):
            if not (support.CACHE / name).exists():
                self.skipTest(f"{name} is not in the model cache")
        if available() < KEEP + int((BLACK + 1.5) * GIB) + HOG_MAX // 2:
            self.skipTest(f"only {available() / GIB:.1f} GiB available")
        self.hog = None
        self.size = 0
        self.service = None

    def tearDown(self):
        if self.hog:
            self.hog.leave()
        if self.service:
            self.service.close()

    def start(self):
        """A service whose floors lie just below what is available with both models loaded."""
        models = [("small", support.SMOLLM), ("large", support.CACHE / OPTIONAL)]
        first = support.Service(models=models, model_keys={"context_tokens": 4096, "slots": 4})
        with first:  # once without, to see what the pair takes
            for name in ("small", "large"):
                first.chat("Say hi.", model=name, max_tokens=4)
            self.rest = at_rest()
        floors = {name: int(self.rest - below * GIB) >> 20
                  for name, below in (("yellow", YELLOW), ("orange", ORANGE), ("red", RED), ("black", BLACK))}
        self.floors = {name: value << 20 for name, value in floors.items()}
        self.assertGreater(self.floors["black"], KEEP + GIB // 2)
        memory = "\n".join(f'{name} = "{value}MiB"' for name, value in floors.items())
        memory += f'\nfloor = "{(int(self.rest - 1.4 * GIB)) >> 20}MiB"\ncalm = "{CALM_S}s"\n'
        self.service = support.Service(models=models, model_keys={"context_tokens": 4096, "slots": 4},
                                       memory=memory)
        self.service.start()
        with open(self.service.folder / "run" / "guard.page", "rb") as file:
            self.page = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
        support.wait_until(lambda: report(self.page)["pinned"] == 3, 10, "the guard knows both models")
        print(f"at rest {self.rest / GIB:.2f} GiB available; floors "
              + ", ".join(f"{name} {value / GIB:.2f}" for name, value in self.floors.items()), flush=True)

    def memory(self):
        return json.loads(self.service.ctl("status", "--json"))["memory"]

    def wait_level(self, level, seconds):
        began = time.monotonic()
        support.wait_until(lambda: LEVELS.index(self.memory()["level"]) >= LEVELS.index(level), seconds, f"level {level}")
        print(f"  {level} after {time.monotonic() - began:.1f} s with {available() / GIB:.2f} GiB", flush=True)

    def slots(self):
        return self.service.status()["large"]["slots"]

    def push_to(self, target, per_s=0.2 * GIB):
        """Pushes until MemAvailable is near `target`, whatever others do meanwhile."""
        for _ in range(20):
            missing = at_rest(0.3) - target
            if abs(missing) < 64 << 20:
                return
            self.size = max(0, self.size + missing)
            self.hog.to(self.size, per_s)
            time.sleep(abs(missing) / per_s + 0.2)

    def test_1_step_by_step(self):
        self.start()
        clients = Clients(self.service)
        self.hog = Hog()
        middle = lambda a, b: (self.floors[a] + self.floors[b]) // 2  # noqa: E731
        self.assertEqual(self.slots(), 4)
        long_prompt = "word " * 1500

        self.push_to(middle("yellow", "orange"))
        self.wait_level("yellow", 15)
        support.wait_until(lambda: self.slots() <= 2, 5, "half the slots, or fewer when others push it further")
        refused = self.service.chat(long_prompt, model="large", max_tokens=4)
        self.assertEqual((refused.status, refused.json()["error"]["code"]), (503, "memory_pressure"), refused)
        self.assertGreaterEqual(int(refused.headers["retry-after"]), 5)
        self.assertEqual(self.service.chat("Hi", model="large", max_tokens=2).status, 200)

        self.push_to(middle("orange", "red"))
        self.wait_level("orange", 15)
        support.wait_until(lambda: self.slots() == 1, 5, "one slot")
        self.assertEqual(self.service.chat("Hi", model="large", max_tokens=2).status, 200)

        self.push_to(self.floors["red"] - GIB // 5, GIB)  # fast: the fall is the second signal
        self.wait_level("red", 15)
        support.wait_until(lambda: self.service.status()["large"]["state"] == "stopped", 40, "the optional model is stopped")
        off = self.service.chat("Hi", model="large", max_tokens=2)
        self.assertEqual((off.status, off.json()["error"]["code"]), (503, "memory_pressure"), off)
        self.assertEqual(self.service.request("GET", "/readyz", key=False).status, 200)
        self.assertTrue(self.memory()["optional_held"])

        while clients.answers < 1000:
            time.sleep(0.1)
        self.hog.leave()
        self.hog = None
        left = time.monotonic()
        support.wait_until(lambda: self.service.status()["large"]["state"] == "ready", 10 * CALM_S, "it returns by itself")
        back_s = time.monotonic() - left
        support.wait_until(lambda: self.memory()["level"] == "green", 10 * CALM_S, "green")
        self.assertEqual(self.slots(), 4)
        clients.stop()
        self.assertEqual(self.memory()["shed"], [])
        print(f"  default model: {clients.answers} answers, {len(clients.failures)} failed, slowest {clients.slowest_s:.2f} s; "
              f"optional model back {back_s:.1f} s after the hog left", flush=True)
        self.assertEqual(clients.failures, [])
        self.assertGreaterEqual(clients.answers, 1000)
        order = [line for line in self.service.log.read_text().splitlines() if "shedding: " in line and "engaged" in line]
        self.assertEqual([line.split("shedding: ")[1].split()[0] for line in order][:10],
                         ["optional_no_long_prefills", "optional_freeze_growth", "pause_background", "optional_half_slots",
                          "optional_one_slot", "optional_drop_prefix_cache", "smaller_chunks", "advise_clean_cache",
                          "default_prompt_cap", "optional_off"])

    def test_2_a_model_that_runs_away(self):
        """The guard alone, on the real host: the model itself grows by 1 GiB/s and does not care for TERM."""
        for fall_rate, what in ((GIB // 4, "its fall is seen"), (100 * GIB, "without a second signal: black alone")):
            with self.subTest(what):
                print(f"  {what}:", flush=True)
                self.run_away(fall_rate)

    def run_away(self, fall_rate):
        folder = tempfile.TemporaryDirectory(prefix="tandem-hog-")
        self.addCleanup(folder.cleanup)  # the last: cleanups run in reverse
        page_path = pathlib.Path(folder.name) / "guard.page"
        guard = subprocess.Popen([str(support.BIN / "tandem-guard"), "--page", str(page_path), "--blackbox",
                                  str(pathlib.Path(folder.name) / "blackbox")], stderr=subprocess.DEVNULL)

        def end_guard():
            guard.terminate()
            guard.wait(10)

        self.addCleanup(end_guard)
        support.wait_until(lambda: page_path.exists() and page_path.stat().st_size == 4096, 10, "the page")
        with open(page_path, "r+b") as file:
            page = mmap.mmap(file.fileno(), 4096)
        support.wait_until(lambda: report(page)["sampled_ms"] > 0, 10, "a first look")
        rest = at_rest()
        black = int(rest - 2 * GIB)
        self.assertGreater(black, KEEP + 2 * GIB)
        self.hog = Hog("stubborn")
        pid = self.hog.child.pid
        ticks = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
        ways = [int(rest - below * GIB) for below in (1.2, 1.0, 1.4, 1.1, 1.6, 1.1)]
        for offset, layout, values in ((512, "<9q", (*ways, black, fall_rate, 10_000)),
                                       (128, "<iIQIi", (pid, os.getuid(), ticks, 0, 0))):
            sequence = struct.unpack_from("<Q", page, offset)[0] | 1
            struct.pack_into("<Q", page, offset, sequence)
            struct.pack_into(layout, page, offset + 8, *values)
            struct.pack_into("<Q", page, offset, sequence + 1)
        support.wait_until(lambda: report(page)["pinned"] == 2, 5, "the guard knows it")
        sampler = Sampler(page)
        time.sleep(0.3)
        self.hog.to(HOG_MAX, GIB)
        support.wait_until(lambda: self.hog.child.poll() is not None, 15, "it is killed", every=0.005)
        time.sleep(0.5)
        sampler.stop()
        self.assertIsNotNone(sampler.kill)
        killed = sampler.kill
        lowest, delay_ms = self.measure(sampler, black)
        self.assertEqual(self.hog.child.returncode, -signal.SIGKILL)
        self.doCleanups()
        self.assertEqual((killed["role"], killed["action"]), (1, 1))
        self.assertGreater(lowest, black - GIB // 4)
        if delay_ms is not None:
            self.assertLess(delay_ms, 100)

    def measure(self, sampler, black):
        killed = sampler.kill
        below = [at for at, bytes_ in sampler.samples if bytes_ < black]
        lowest = min(bytes_ for _, bytes_ in sampler.samples)
        delay_ms = killed["acted_ms"] - below[0] * 1000 if below else None
        print(f"  killed because {REASONS[killed['reason']]}; lowest {(lowest - black) / GIB:+.3f} GiB against black; SIGKILL "
              f"{'-' if delay_ms is None else round(delay_ms, 1)} ms after our first sample below", flush=True)
        return lowest, delay_ms

    def test_3_collapse_beside_a_service(self):
        """A hog of others grows by 1 GiB/s: the optional model is gone no later than at black, the default model serves."""
        self.start()
        clients = Clients(self.service, count=1)
        # An answer under way keeps the optional model from ending on TERM: the kill is the guard's.
        stream = support.Stream(self.service, {
            "model": "large", "messages": [{"role": "user", "content": "Count to ten thousand."}], "max_tokens": 3000,
            "ignore_eos": True})
        self.assertEqual(stream.status, 200)
        black = self.floors["black"]
        self.hog = Hog()
        sampler = Sampler(self.page)
        time.sleep(0.2)
        # Its own end: what the optional model holds is mapped from its file, so that its end gives little back.
        size = 0

        for _ in range(6):  # others may have given memory back meanwhile
            if sampler.kill:
                break
            size += available() - black + GIB // 5
            self.hog.to(size, GIB)
            end = time.monotonic() + max(0, available() - black) / GIB + 2
            while not sampler.kill and time.monotonic() < end:
                time.sleep(0.005)
        self.assertTrue(sampler.kill, f"the guard does not kill: {report(self.page)}, {available() / GIB:.2f} GiB available")
        killed = sampler.kill
        time.sleep(1)
        self.hog.leave()
        self.hog = None
        sampler.stop()
        _, delay_ms = self.measure(sampler, black)
        began = time.monotonic()
        try:
            support.wait_until(lambda: self.service.status()["large"]["state"] == "ready", 12 * CALM_S, "it returns by itself")
        except AssertionError:
            print(f"  {available() / GIB:.2f} GiB available, {self.memory()}\n{self.service.log_tail()}", flush=True)
            raise
        clients.stop()
        stream.vanish()
        print(f"  default model: {clients.answers} answers, {len(clients.failures)} failed; optional model back "
              f"{time.monotonic() - began:.1f} s later", flush=True)
        self.assertEqual(clients.failures, [])
        self.assertEqual(killed["role"], 1)
        if delay_ms is not None:
            self.assertLess(delay_ms, 100)


if __name__ == "__main__":
    support.main()
