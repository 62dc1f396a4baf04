#!/usr/bin/env python3
"""kill -9 of tandemd, the guard and the engines, in random order and under load.

After each round everything is back by itself, the store is whole, the control page says who runs, the books of the
engines add up, and nothing is left over. A request to the default model fails only when it was in flight on a default
engine that was killed; while tandemd itself is dead there is nobody to answer, and a client that asks again is served.

  kill_test.py [--long] [--seed N] [--rounds N]
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import struct
import sys
import tempfile
import threading
import time
import unittest

import support

ROUNDS = {"short": 8, "long": 100}
OPTIONS = None
TENANT_OFFSETS = {"tiny": 64, "tiny2": 128}  # of the control page, see memory_budget/guard_page.h


class Load:
    """Clients of one model that ask without a pause; what they saw, with the time each request took."""

    def __init__(self, service, model, clients):
        self.service = service
        self.model = model
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.outcomes = []  # (began, ended, kind, detail)
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self, index):
        number = 0
        while not self.stop.is_set():
            number += 1
            began = time.monotonic()
            try:
                kind, detail = self.ask(f"client {index}, number {number}", stream=number % 2 == 0)
            except (ConnectionRefusedError, FileNotFoundError):
                kind, detail = "nobody", ""  # tandemd is dead: nothing was accepted
            except (OSError, http.client.HTTPException) as error:
                kind, detail = "cut", repr(error)
            with self.lock:
                self.outcomes.append((began, time.monotonic(), kind, detail))
            if kind in ("nobody", "refused"):
                self.stop.wait(0.05)

    def ask(self, text, stream):
        body = {"model": self.model, "messages": [{"role": "user", "content": text}], "max_tokens": 24,
                "ignore_eos": True}
        if not stream:
            answer = self.service.request("POST", "/v1/chat/completions", body, timeout=60)
            if answer.status == 200:
                whole = answer.json()["choices"][0]["finish_reason"] in ("stop", "length")
                return ("good", "") if whole else ("failed", answer.body[:200])
            retry = answer.status in (429, 503) and "retry-after" in answer.headers
            in_flight = b"engine" in answer.body and b"ended" in answer.body or b"connection" in answer.body
            return ("failed" if not retry or in_flight else "refused", f"{answer.status} {answer.body[:300]}")
        events = support.Stream(self.service, body, timeout=60)
        if events.status != 200:
            return ("refused" if events.status in (429, 503) else "failed", str(events.status))
        last = None
        for event in events.events():
            if isinstance(event, dict) and "error" in event:
                return "failed", json.dumps(event)[:300]
            last = event
        return ("good", "") if last == "[DONE]" else ("cut", "a stream without an end")

    def count(self, kind):
        with self.lock:
            return sum(1 for outcome in self.outcomes if outcome[2] == kind)

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(timeout=90)
        return list(self.outcomes)


class KillTest(unittest.TestCase):
    def setUp(self):
        self.service = support.Service(engines='restart_backoff = "50ms"\nrestart_window = "1s"\nrestarts = 100')
        self.addCleanup(self.service.close)
        self.service.start()
        self.guarded = self.find_guard() is not None
        self.records = 0

    # --- Who runs ---

    def find_guard(self):
        for pid in self.service.processes():
            try:
                if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "tandem-guard":
                    return pid
            except OSError:
                continue
        return None

    def kill(self, victim):
        """The time of the kill and of its end."""
        service = self.service
        began = time.monotonic()
        if victim == "tandemd":
            service.daemon.kill()
            service.daemon.wait()
            self.check_store()
            service.start(wait=False)
        elif victim == "guard":
            support.kill_pid(self.find_guard(), signal.SIGKILL)
        else:
            pid = service.status()[victim]["pid"]
            support.kill_pid(pid, signal.SIGKILL)
            support.wait_until(lambda: service.status().get(victim, {}).get("pid") != pid, 30, f"{victim} is gone")
        return began

    def all_ready(self):
        status = self.service.status()
        return len(status) == 2 and all(model["state"] == "ready" for model in status.values())

    # --- What must hold after each round ---

    def check_page(self):
        page = (self.service.folder / "run" / "guard.page").read_bytes()
        for name, model in self.service.status().items():
            # sequence number, pid, uid, start time, loading
            _, pid, _, ticks, loading = struct.unpack_from("<QiIQI", page, TENANT_OFFSETS[name])
            self.assertEqual(model["pid"], pid, f"the page names the engine of {name}")
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            self.assertEqual(int(stat[19]), ticks)
            self.assertEqual(0, loading)

    def check_store(self):
        """As the kill left it: tandemd holds the file for itself while it runs. A copy, so that nothing is repaired."""
        with tempfile.TemporaryDirectory() as copy:
            for name in ("tandem.db", "tandem.db-wal"):
                if (self.service.folder / "state" / name).exists():
                    shutil.copy(self.service.folder / "state" / name, copy)
            store = sqlite3.connect(pathlib.Path(copy) / "tandem.db")
            try:
                self.assertEqual([("ok",)], store.execute("PRAGMA integrity_check").fetchall())
                records = store.execute("SELECT count(*) FROM requests").fetchone()[0]
            finally:
                store.close()
        self.assertGreaterEqual(records, self.records, "no stored record is lost")
        self.records = records

    def check_nothing_left(self):
        names = [pathlib.Path(f"/proc/{pid}/comm").read_text().strip() for pid in self.service.processes()]
        expected = ["tandem-engine", "tandem-engine", "tandemd"] + (["tandem-guard"] if self.guarded else [])
        self.assertEqual(sorted(expected), sorted(names))
        sockets = sorted(p.name for p in (self.service.folder / "run").rglob("*") if p.is_socket())
        self.assertEqual(["admin.sock", "engine-default.sock", "engine-optional.sock"], sockets)

    def check_books(self):
        """Idle: every page is free or kept for prefixes, nothing runs."""
        for name in ("tiny", "tiny2"):
            def idle(name=name):
                stats = json.loads(self.service.ctl("model", "show", name, "--json")).get("stats")
                return stats if stats and stats["running"] == 0 and stats["waiting"] == 0 else None
            stats = support.wait_until(idle, 30, f"{name} is idle")
            self.assertEqual(stats["kv_pages_total"], stats["kv_pages_free"] + stats.get("kv_pages_cached", 0), name)

    def files_open(self):
        return len(os.listdir(f"/proc/{self.service.daemon.pid}/fd"))

    def test_everything_comes_back(self):
        rounds = OPTIONS.rounds or ROUNDS["long" if OPTIONS.long else "short"]
        chance = random.Random(OPTIONS.seed)
        victims = ["tandemd", "tiny", "tiny2"] + (["guard"] if self.guarded else [])
        order = [victims[i % len(victims)] for i in range(rounds)]
        chance.shuffle(order)
        print(f"seed {OPTIONS.seed}: {' '.join(order)}", flush=True)
        self.service.admin_key()
        default = Load(self.service, "tiny", 2)
        optional = Load(self.service, "tiny2", 1)
        kills = []
        self.addCleanup(default.stop.set)
        self.addCleanup(optional.stop.set)
        for number, victim in enumerate(order):
            good = default.count("good")
            support.wait_until(lambda good=good: default.count("good") > good, 60, "the default model answers")
            began = self.kill(victim)
            support.wait_until(self.all_ready, 90, f"all is back after kill {number} ({victim})", every=0.05)
            if self.guarded:
                support.wait_until(lambda: self.find_guard() is not None, 30, "the guard is back")
            kills.append((victim, began, time.monotonic()))
            support.wait_until(lambda: self.service.request("GET", "/readyz", key=False).status == 200, 10, "readyz")
            self.check_page()
            self.check_nothing_left()
        outcomes = default.end()
        optional.end()
        self.check_books()
        self.check_nothing_left()
        self.check_outcomes(outcomes, kills)
        open_before = self.files_open()
        for _ in range(20):
            self.assertEqual(200, self.service.chat("and then?", "tiny").status)
        self.assertLessEqual(self.files_open(), open_before + 2)

    def check_outcomes(self, outcomes, kills):
        """Every request to the default model that went wrong overlaps the kill that explains it."""
        def explained(began, ended, victims):
            return any(victim in victims and began <= back and ended >= killed for victim, killed, back in kills)

        kinds = {}
        for began, ended, kind, detail in outcomes:
            kinds[kind] = kinds.get(kind, 0) + 1
            if kind == "failed":
                self.assertTrue(explained(began, ended, {"tiny"}), f"failed without a killed default engine: {detail}")
            elif kind in ("cut", "nobody"):
                self.assertTrue(explained(began, ended, {"tandemd"}), f"{kind} while tandemd lived: {detail}")
            elif kind == "refused":
                self.assertTrue(explained(began, ended, {"tiny", "tandemd"}), f"refused while all was well: {detail}")
        print(f"the default model's requests: {kinds}", flush=True)
        self.assertGreater(kinds.get("good", 0), len(kills))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=0)
    OPTIONS, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    support.main()
