#!/usr/bin/env python3
"""The guard in a running service, without a hog: floors that are written onto the control page raise the level.

What the page means is docs/formats/guard.md; tandemd writes the floors once, at its start, so a test may after it.
"""
import json
import mmap
import os
import pathlib
import signal
import struct
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import support  # noqa: E402

GIB = 1 << 30
FLOORS = 512
REPORT = 256
LEVELS = ["green", "yellow", "orange", "red", "black"]
CALM_MS = 4000


class GuardTest(unittest.TestCase):
    def setUp(self):
        self.service = support.Service()
        self.addCleanup(self.service.close)
        self.service.start()
        with open(self.service.folder / "run" / "guard.page", "r+b") as file:
            self.page = mmap.mmap(file.fileno(), 4096)
        support.wait_until(lambda: struct.unpack_from("<I", self.page, REPORT + 20)[0] == 3, 10, "the guard knows both models")

    def memory(self):
        return json.loads(self.service.ctl("status", "--json"))["memory"]

    def raise_to(self, level):
        """Floors of which the worst that MemAvailable is below is `level`'s; far from it on both sides."""
        total = int(next(line for line in pathlib.Path("/proc/meminfo").read_text().splitlines()
                         if line.startswith("MemTotal")).split()[1]) * 1024
        worse = LEVELS.index(level)
        # Way in of yellow, orange, red, black: above all memory for the levels wanted, a few MiB for the others.
        ins = [total * (8 - i) if i < worse else (40 - 8 * i) << 20 for i in range(4)]
        numbers = []
        for value in ins[:3]:
            numbers += [value, value + (1 << 20)]
        numbers += [ins[3], 1, CALM_MS]  # any fall is a second signal
        sequence = struct.unpack_from("<Q", self.page, FLOORS)[0] | 1
        struct.pack_into("<Q", self.page, FLOORS, sequence)
        struct.pack_into("<9q", self.page, FLOORS + 8, *numbers)
        struct.pack_into("<Q", self.page, FLOORS, sequence + 1)

    def model(self, name="tiny2"):
        return self.service.status()[name]

    def wait_level(self, level, seconds=15):
        support.wait_until(lambda: self.memory()["level"] == level, seconds, f"level {level}")

    def test_the_optional_model_is_slowed_then_stopped_and_comes_back(self):
        self.assertEqual(self.memory()["watched_by"], "guard")
        self.raise_to("yellow")
        self.wait_level("yellow")
        support.wait_until(lambda: self.model()["slots"] == 2, 5, "half the slots")
        refused = self.service.chat("word " * 450, model="tiny2", max_tokens=2)
        self.assertEqual((refused.status, refused.json()["error"]["code"]), (503, "memory_pressure"), refused)
        self.assertGreaterEqual(int(refused.headers["retry-after"]), 5)
        self.assertRegex(support.error_of(refused)["message"], r"has \d+ tokens, model tiny2 takes at most 1024 for now: .*yellow")
        self.assertEqual(self.service.chat("Hi", model="tiny2", max_tokens=2).status, 200)
        self.assertEqual(self.service.chat("word " * 450, max_tokens=2).status, 200)  # the default model takes it

        self.raise_to("orange")
        self.wait_level("orange")
        support.wait_until(lambda: self.model()["slots"] == 1, 5, "one slot")
        self.assertIn("advise_clean_cache", self.memory()["shed"])
        self.assertEqual(self.service.metrics()['tandem_shed{step="optional_one_slot"}'], 1)

        pid = self.model()["pid"]
        self.raise_to("black")
        support.wait_until(lambda: not support.process_alive(pid), 5, "the optional model is killed")
        self.wait_level("black")
        support.wait_until(lambda: self.model()["state"] == "stopped", 20, "it is not started anew")
        off = self.service.chat("Hi", model="tiny2", max_tokens=2)
        self.assertEqual((off.status, off.json()["error"]["code"]), (503, "memory_pressure"), off)
        ready = self.service.request("GET", "/readyz", key=False)
        self.assertEqual((ready.status, ready.json()["memory"]["level"]), (200, "black"))
        for _ in range(20):
            self.assertEqual(self.service.chat("Hi", max_tokens=2).status, 200)
        # Fewer, as nothing else is left to shed; the guard has to see first that the optional model is gone.
        support.wait_until(lambda: self.model("tiny")["slots"] == 2, 5, "half the slots of the default model")
        self.assertIn("stopped_by_guard of tiny2", self.service.log.read_text())

        self.raise_to("green")
        support.wait_until(lambda: self.model()["state"] == "ready", 60, "it comes back by itself")
        self.wait_level("green")
        self.assertEqual(self.memory()["shed"], [])
        self.assertEqual((self.model()["slots"], self.model("tiny")["slots"]), (4, 4))
        self.assertEqual(self.service.chat("Hi", model="tiny2", max_tokens=2).status, 200)

    def test_it_works_while_tandemd_hangs(self):
        pid, main = self.model()["pid"], self.model("tiny")["pid"]
        os.kill(self.service.daemon.pid, signal.SIGSTOP)
        try:
            self.raise_to("black")
            support.wait_until(lambda: not support.process_alive(pid), 5, "the optional model is killed")
            self.assertTrue(support.process_alive(main))
        finally:
            os.kill(self.service.daemon.pid, signal.SIGCONT)
        self.wait_level("black")
        support.wait_until(lambda: self.model()["state"] == "stopped", 20, "tandemd holds it off")
        self.assertEqual(self.service.chat("Hi", max_tokens=2).status, 200)
        self.raise_to("green")
        support.wait_until(lambda: self.model()["state"] == "ready", 60, "it comes back by itself")

    def test_tandemd_and_guard_die_apart(self):
        guard = self.memory()["guard"]["pid"]
        self.service.daemon.kill()
        self.service.daemon.wait()
        self.assertTrue(support.process_alive(guard))
        self.service.start()
        self.assertEqual(self.memory()["guard"]["pid"], guard)
        support.kill_pid(guard, signal.SIGKILL)
        support.wait_until(lambda: self.memory()["guard"]["pid"] not in (0, guard), 10, "a new guard")
        support.wait_until(lambda: self.memory()["watched_by"] == "guard", 10, "it looks")
        self.assertIn(f"the guard, process {guard}, ended by itself", self.service.log.read_text())
        pid = self.model()["pid"]
        support.wait_until(lambda: struct.unpack_from("<I", self.page, REPORT + 20)[0] == 3, 10, "it knows both models")
        self.raise_to("black")
        support.wait_until(lambda: not support.process_alive(pid), 5, "the new guard works")
        self.service.daemon.send_signal(signal.SIGTERM)
        self.service.daemon.wait(60)
        self.assertEqual(self.service.processes(), [])  # an ordered stop leaves no guard either


if __name__ == "__main__":
    support.main()
