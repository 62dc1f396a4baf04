#!/usr/bin/env python3
"""Two engines that decode at the same time share the device by the lease, whoever dies.

Both are served and wait for each other, but never compute at once; kill -9 of the engine that holds the lease costs
the other one's clients nothing; tandemd killed and started again takes over page and engines as they are.
"""
import http.client
import json
import mmap
import os
import pathlib
import signal
import struct
import threading
import time
import unittest

import support

HOLDERS = {1: "default", 2: "optional"}


def process_state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


class Talker:
    """One client that asks a model again and again, until stop(); what went wrong is kept with its time."""

    def __init__(self, service, model):
        self.service = service
        self.model = model
        self.good = 0
        self.problems = []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        body = {"model": self.model, "prompt": "the river", "max_tokens": 60, "ignore_eos": True, "stream": True}
        while not self.stopped.is_set():
            stream = None
            try:
                stream = support.Stream(self.service, body, path="/v1/completions")
                if stream.status != 200:
                    self.note(f"status {stream.status}: {stream.answer.read()[:200]}")
                    continue
                events = list(stream.events())
                wrong = [event for event in events if event != "[DONE]" and "error" in event]
                if wrong or events[-1:] != ["[DONE]"]:
                    self.note(f"{len(events)} events, {wrong[:1]}")
                else:
                    self.good += 1
            except (OSError, http.client.HTTPException) as error:
                self.note(repr(error))
            finally:
                if stream is not None:
                    stream.vanish()

    def note(self, what):
        self.problems.append((time.monotonic(), what))
        self.stopped.wait(0.05)

    def stop(self):
        self.stopped.set()
        self.thread.join(timeout=60)
        return self


class Page:
    """The lease page, read as docs/formats/lease.md says."""

    def __init__(self, service):
        with open(service.folder / "run" / "lease.page", "rb") as file:
            self.map = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)

    def id(self):
        return struct.unpack_from("<Q", self.map, 24)[0]

    def holder(self):
        return HOLDERS.get(struct.unpack_from("<I", self.map, 64)[0] & 3)

    def pid(self, role):
        return struct.unpack_from("<Q", self.map, {"default": 256, "optional": 512}[role])[0] & ((1 << 22) - 1)


def stats_of(service, model):
    return json.loads(service.ctl("model", "show", model, "--json")).get("stats") or {}


class LeaseTest(unittest.TestCase):
    def setUp(self):
        self.service = support.Service(model_keys={"context_tokens": 1024, "slots": 2})
        self.addCleanup(self.service.close)
        self.service.start()
        self.page = Page(self.service)

    def talk(self):
        talkers = {role: Talker(self.service, role) for role in ("default", "optional")}
        for talker in talkers.values():
            self.addCleanup(talker.stop)
        support.wait_until(lambda: all(talker.good > 1 for talker in talkers.values()), 60, "both models answer")
        return talkers

    def test_both_are_served_in_turns(self):
        talkers = self.talk()
        roles = ("default", "optional")
        before, begun = {role: stats_of(self.service, role) for role in roles}, time.monotonic()
        answered = {role: talkers[role].good for role in roles}
        support.wait_until(lambda: all(talkers[role].good > answered[role] + 5 for role in roles), 60, "more answers")
        wall_first = time.monotonic() - begun
        after = {role: stats_of(self.service, role) for role in roles}
        wall = time.monotonic() - begun
        grown = {role: {key: after[role][key] - before[role][key] for key in (
            "lease_served_us", "lease_waits", "lease_hand_overs", "lease_units", "completion_tokens")} for role in roles}
        for role in roles:
            for key, value in grown[role].items():
                self.assertGreater(value, 0, f"{role}: {key}; {grown}")
            self.assertGreater(after[role]["lease_quantum_us"], 0)
        # Never both at once: their device time is no more than the time that passed.
        served = sum(grown[role]["lease_served_us"] for role in roles) / 1e6
        self.assertLess(served, wall + 0.1, grown)
        self.assertGreater(served, 0.3 * wall_first, grown)
        share = grown["optional"]["lease_served_us"] / 1e6 / served
        self.assertGreater(share, 0.05, grown)
        self.assertLess(share, 0.5, grown)
        top = json.loads(self.service.ctl("top", "--once", "--json"))
        for model in top["models"]:
            self.assertGreater(model["device_share"], 0, model)
            self.assertGreater(model["lease_waits_per_s"], 0, model)
            self.assertGreater(model["tokens_per_s"], 0, model)
            self.assertGreater(model["lease_wait_p99_us"], 0, model)
        for role, talker in talkers.items():
            self.assertEqual(talker.stop().problems, [], role)

    def stopped_as_holder(self, pid, role):
        """Stops the process; goes on with it when it had let the lease go before it stood still."""
        if self.page.holder() != role:
            return False
        os.kill(pid, signal.SIGSTOP)
        support.wait_until(lambda: process_state(pid) == "T", 10, "the process stands still", every=0.0)
        if self.page.holder() == role:
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    def kill_holder(self, role, other):
        talkers = self.talk()
        pid = self.page.pid(role)
        self.assertEqual(pid, json.loads(self.service.ctl("model", "show", role, "--json"))["pid"])
        before = stats_of(self.service, other)
        support.wait_until(lambda: self.stopped_as_holder(pid, role), 60, f"the {role} model holds the lease", every=0.0)
        os.kill(pid, signal.SIGKILL)
        killed, answered = time.monotonic(), talkers[other].good
        support.wait_until(lambda: talkers[other].good > answered + 3, 20, f"the {other} model answers on")
        self.assertLess(time.monotonic() - killed, 15)
        after = stats_of(self.service, other)
        taken = sum(after[key] - before[key] for key in ("lease_broken", "lease_bypassed"))
        self.assertGreater(taken, 0, "it took the lease from the dead one")
        support.wait_until(lambda: self.page.pid(role) not in (0, pid), 60, "its place is taken again")
        self.service.wait_ready()
        answered = {each: talkers[each].good for each in talkers}
        support.wait_until(lambda: all(talkers[each].good > answered[each] + 2 for each in talkers), 60, "both answer again")
        self.assertEqual(talkers[other].stop().problems, [], "of the one that lived")
        problems = talkers[role].stop().problems
        self.assertTrue(problems, "an answer that was under way ends with an error")
        self.assertLess(problems[-1][0] - killed, 60)

    def test_the_optional_holder_is_killed(self):
        self.kill_holder("optional", "default")

    def test_the_default_holder_is_killed(self):
        self.kill_holder("default", "optional")

    def test_tandemd_is_killed_and_started_again(self):
        talkers = self.talk()
        pids = {role: self.page.pid(role) for role in HOLDERS.values()}
        page = self.page.id()
        os.kill(self.service.daemon.pid, signal.SIGKILL)
        self.service.daemon.wait(timeout=10)
        self.service.start()
        self.assertEqual({role: self.page.pid(role) for role in HOLDERS.values()}, pids, "the engines run on")
        self.assertEqual(Page(self.service).id(), page, "and so does their page")
        self.assertEqual({model["pid"] for model in self.service.status().values()}, set(pids.values()))
        ready, answered = time.monotonic(), {role: talkers[role].good for role in talkers}
        before = {role: stats_of(self.service, role) for role in talkers}
        support.wait_until(lambda: all(talkers[role].good > answered[role] + 3 for role in talkers), 60, "both answer again")
        after = {role: stats_of(self.service, role) for role in talkers}
        for role, talker in talkers.items():
            self.assertGreater(after[role]["lease_waits"], before[role]["lease_waits"], role)
            self.assertGreater(after[role]["lease_served_us"], before[role]["lease_served_us"], role)
            self.assertEqual([what for at, what in talker.stop().problems if at > ready], [], role)


class PaceTest(unittest.TestCase):
    """Without a lease the gateway holds the optional model back by what the default model's clients see."""

    def pacing(self):
        return json.loads(self.service.ctl("status", "--json"))["pacing"]

    def test_the_optional_model_is_held_back_and_comes_back(self):
        self.service = support.Service(model_keys={"context_tokens": 1024, "slots": 4}, lease='mode = "pace"')
        self.addCleanup(self.service.close)
        self.service.start()
        self.assertEqual(self.pacing(), {"stage": 0, "requests_max": None, "prompt_tokens_max": None})
        self.assertEqual(stats_of(self.service, "default")["lease_units"], 0)
        first = Talker(self.service, "default")
        self.addCleanup(first.stop)
        begun = time.monotonic()
        # It needs a window of the default model alone to know what is normal.
        support.wait_until(lambda: first.good > 3 and time.monotonic() - begun > 8, 60, "the default model alone")
        others = [Talker(self.service, "optional") for _ in range(4)]
        for talker in others:
            self.addCleanup(talker.stop)
        held = support.wait_until(lambda: self.pacing()["stage"] > 1 and self.pacing(), 60, "the optional model is held back",
                                  every=0.5)
        self.assertLessEqual(held["requests_max"], 1)
        self.assertIn("paced, stage", self.service.log.read_text())
        served = sum(talker.good for talker in others)
        self.assertEqual(first.stop().problems, [])
        support.wait_until(lambda: self.pacing()["stage"] == 0, 90, "it is free again", every=0.5)
        support.wait_until(lambda: sum(talker.good for talker in others) > served + 8, 60, "and is served")
        for talker in others:
            self.assertEqual(talker.stop().problems, [])


if __name__ == "__main__":
    unittest.main()
