#!/usr/bin/env python3
"""Random arrivals on both models for a long time: cancels, slow readers, kills of engines, changes of budgets.

Every request ends exactly once: with one finish, with an error, or because its client went away. At the end the pages
and the books of both engines add up to what they hold when idle, and tandemd has no more memory, files and threads
than after the first minutes.

  soak_test.py [--minutes N] [--seed N] [--clients N]
"""
import argparse
import http.client
import json
import os
import random
import signal
import sys
import threading
import time
import unittest

import support

OPTIONS = None
SETTLE_SHARE = 0.3           # of the time: caches and pools fill; only what comes after it must be flat
MEMORY_SLOPE_BYTES_S = 64 << 10
MEMORY_SLACK_BYTES = 24 << 20
FILES_SLACK = 8
THREADS_SLACK = 4


class Client:
    """One user: random requests of random kinds, each with exactly one outcome."""

    def __init__(self, service, seed):
        self.service = service
        self.chance = random.Random(seed)
        self.outcomes = []  # (began, ended, kind, detail)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        kinds = [(self.plain, 4), (self.stream, 6), (self.vanish, 3), (self.slow, 1)]
        while not self.stop.is_set():
            kind = self.chance.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
            began = time.monotonic()
            try:
                outcome, detail = kind(self.body())
            except (OSError, http.client.HTTPException) as error:
                outcome, detail = "cut", repr(error)
            self.outcomes.append((began, time.monotonic(), outcome, detail))
            self.stop.wait(self.chance.expovariate(2.0))

    def body(self):
        words = ["river", "deer", "Friday", "invoice", "budget", "Seoul", "garden", "seven"]
        text = " ".join(self.chance.choices(words, k=self.chance.choice((3, 20, 200, 900))))
        return {"model": self.chance.choice(("tiny", "tiny", "tiny2")), "ignore_eos": True,
                "max_tokens": self.chance.choice((1, 20, 120, 400)),
                "messages": [{"role": "user", "content": text}]}

    @staticmethod
    def refusal(answer_status, body):
        if answer_status in (429, 503):
            return "refused", ""
        return "failed", f"{answer_status} {body[:200]}"

    def plain(self, body):
        answer = self.service.request("POST", "/v1/chat/completions", body, timeout=120)
        if answer.status != 200:
            return self.refusal(answer.status, answer.body)
        choices = answer.json()["choices"]
        return ("good", "") if len(choices) == 1 and choices[0]["finish_reason"] else ("wrong", str(answer))

    def read(self, stream, pause=0.0):
        """All of a stream: its finishes and [DONE]s are counted."""
        finishes = dones = 0
        for event in stream.events():
            if event == "[DONE]":
                dones += 1
            elif "error" in event:
                return "failed", json.dumps(event)[:200]
            else:
                finishes += sum(1 for choice in event["choices"] if choice.get("finish_reason"))
            if pause:
                self.stop.wait(pause)
        if dones == 0:
            return "cut", f"a stream without an end, {finishes} finishes"
        return ("good", "") if (finishes, dones) == (1, 1) else ("wrong", f"{finishes} finishes, {dones} [DONE]")

    def open(self, body):
        stream = support.Stream(self.service, body, timeout=120)
        return stream, None if stream.status == 200 else self.refusal(stream.status, stream.answer.read())

    def stream(self, body):
        stream, refused = self.open(body)
        try:
            return refused or self.read(stream)
        finally:
            stream.vanish()

    def slow(self, body):
        stream, refused = self.open(body)
        try:
            return refused or self.read(stream, pause=0.05)
        finally:
            stream.vanish()

    def vanish(self, body):
        """Goes away at a random token: there is nobody to see an end, the engine must."""
        stream, refused = self.open(body)
        try:
            if refused:
                return refused
            left = self.chance.randrange(0, 30)
            for _ in stream.events():
                left -= 1
                if left < 0:
                    break
            return "left", ""
        finally:
            stream.vanish()


def slope(samples):
    """Least squares, bytes per second."""
    count = len(samples)
    mean_t = sum(t for t, _ in samples) / count
    mean_v = sum(v for _, v in samples) / count
    below = sum((t - mean_t) ** 2 for t, _ in samples)
    return sum((t - mean_t) * (v - mean_v) for t, v in samples) / below if below else 0.0


class SoakTest(unittest.TestCase):
    def setUp(self):
        self.service = support.Service(engines='restart_backoff = "50ms"\nrestart_window = "1s"\nrestarts = 100')
        self.addCleanup(self.service.close)
        self.service.start()
        self.chance = random.Random(OPTIONS.seed)
        self.kills = []    # (began, back, model)

    def tandemd(self):
        """(memory, files, threads) of the process."""
        pid = self.service.daemon.pid
        return (support.resident_bytes(pid), len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task")))

    def ready(self):
        status = self.service.status()
        return len(status) == 2 and all(model["state"] == "ready" for model in status.values())

    def kill(self):
        victim = self.chance.choice(("tiny", "tiny2"))
        pid = self.service.engine_pid(victim)
        began = time.monotonic()
        support.kill_pid(pid, signal.SIGKILL)
        support.wait_until(lambda: self.service.status().get(victim, {}).get("pid") != pid, 60, f"{victim} is gone")
        support.wait_until(self.ready, 120, f"{victim} is back", every=0.1)
        self.kills.append((began, time.monotonic(), victim))

    def change_budget(self):
        victim = self.chance.choice(("tiny", "tiny2"))
        slots = self.chance.choice((1, 2, 4, 6))
        done = self.service.ctl("budget", "set", victim, "--slots", str(slots), "--force", "--json", check=False)
        # Refused is an answer: others may load, or the memory may not be there.
        self.assertIn(done.returncode, (0, 1, 3, 4, 5), done.stderr)

    def stats_idle(self, name):
        def idle():
            stats = json.loads(self.service.ctl("model", "show", name, "--json")).get("stats")
            return stats if stats and stats["running"] == 0 and stats["waiting"] == 0 else None
        return support.wait_until(idle, 60, f"{name} is idle")

    def check_books(self, name):
        """Every page is free or kept for prefixes; the ledger is the sum of its tags."""
        stats = self.stats_idle(name)
        self.assertEqual(0, stats["kv_pages_owned"], f"{name}: pages that no request owns")
        self.assertEqual(stats["kv_pages_total"], stats["kv_pages_free"] + stats["kv_pages_cached"], name)
        tags = sum(value for key, value in stats.items() if key.startswith("ledger_") and key != "ledger_bytes")
        self.assertEqual(stats["ledger_bytes"], tags, f"{name}: the ledger is its tags")

    def test_soak(self):
        seconds = OPTIONS.minutes * 60
        print(f"seed {OPTIONS.seed}, {OPTIONS.minutes:g} minutes, {OPTIONS.clients} clients", flush=True)
        began = time.monotonic()
        clients = [Client(self.service, 1000 * OPTIONS.seed + i) for i in range(OPTIONS.clients)]
        for client in clients:
            self.addCleanup(client.stop.set)
        samples = []  # (time, memory, files, threads)
        next_kill = next_budget = began + 5
        while (now := time.monotonic()) - began < seconds:
            samples.append((now - began, *self.tandemd()))
            if now >= next_budget:
                self.change_budget()
                next_budget = now + self.chance.uniform(5, 30)
            if now >= next_kill:
                self.kill()
                next_kill = time.monotonic() + self.chance.uniform(10, 90)
            time.sleep(0.5)
        for client in clients:
            client.stop.set()
        for client in clients:
            client.thread.join(timeout=150)
            self.assertFalse(client.thread.is_alive(), "a request that never ended")
        outcomes = [outcome for client in clients for outcome in client.outcomes]
        for name in ("tiny", "tiny2"):
            self.check_books(name)
        self.check_outcomes(outcomes)
        self.check_records(outcomes)
        self.check_flat(samples)

    def check_outcomes(self, outcomes):
        kinds = {}
        for began, ended, kind, detail in outcomes:
            kinds[kind] = kinds.get(kind, 0) + 1
            self.assertNotEqual("wrong", kind, detail)
            if kind in ("failed", "cut"):
                explained = any(began <= back and ended >= killed for killed, back, _ in self.kills)
                self.assertTrue(explained, f"{kind} without a kill of an engine: {detail}")
        print(f"outcomes {kinds}, {len(self.kills)} kills", flush=True)
        self.assertGreater(kinds.get("good", 0), 0)

    def check_records(self, outcomes):
        """tandemd has written one record for each request that was taken."""
        taken = sum(1 for outcome in outcomes if outcome[2] in ("good", "left"))

        def written():
            store = json.loads(self.service.ctl("status", "--json"))["store"]
            return store if store["records_waiting"] == 0 and store["records_written"] >= taken else None
        store = support.wait_until(written, 20, f"{taken} records")
        self.assertLessEqual(store["records_written"], len(outcomes))
        self.assertEqual(0, store["records_dropped"])

    def check_flat(self, samples):
        settled = [sample for sample in samples if sample[0] >= SETTLE_SHARE * samples[-1][0]]
        def ends(column):
            third = max(1, len(settled) // 3)
            return (sorted(s[column] for s in settled[:third])[third // 2],
                    sorted(s[column] for s in settled[-third:])[third // 2])
        grown = slope([(s[0], s[1]) for s in settled])
        first, last = ends(1)
        print(f"tandemd: {first >> 20} to {last >> 20} MiB, {grown / 1024:.1f} KiB/s; files {ends(2)}, "
              f"threads {ends(3)}", flush=True)
        flat = last - first <= MEMORY_SLACK_BYTES or grown <= MEMORY_SLOPE_BYTES_S
        self.assertTrue(flat, f"memory grows by {grown:.0f} bytes/s, {first} to {last}")
        idle = support.wait_until(lambda: (now := self.tandemd())[1] <= samples[0][1] + FILES_SLACK and now, 30,
                                  f"files are closed again: {self.tandemd()[1]}, {samples[0][1]} at first")
        self.assertLessEqual(idle[2], max(samples[0][3], ends(3)[0]) + THREADS_SLACK, "threads")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--clients", type=int, default=6)
    OPTIONS, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    support.main()
