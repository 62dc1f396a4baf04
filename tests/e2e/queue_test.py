#!/usr/bin/env python3
"""Who waits for a model: shares of keys, deadlines, full queues, departures, kills and drains (docs/queues.md)."""
import json
import os
import signal
import threading
import time
import unittest

import support

PROMPT = {"prompt": "Nora walked along the river.", "max_tokens": 3500, "ignore_eos": True}
ENDLESS = {**PROMPT, "max_tokens": 15000}  # for as long as a test sets things up, on a busy machine too
SHORT = {"prompt": "Nora walked along the river.", "max_tokens": 12, "ignore_eos": True}
PATH = "/v1/completions"


class QueueTest(unittest.TestCase):
    keys = {"slots": 1, "queue_max": 8, "context_tokens": 16384}

    def setUp(self):
        self.service = support.Service(model_keys=self.keys)
        self.addCleanup(self.service.close)
        self.service.start()

    def new_key(self, name):
        return json.loads(self.service.ctl("key", "add", name, "--scope", "inference", "--json"))["key"]

    def waiting(self, model="tiny"):
        figures = self.service.status()[model]["waiting"]
        return figures["interactive"] + figures["batch"]

    def under_way(self, model="tiny"):
        return self.service.status()[model]["waiting"]["under_way"]

    def post(self, body, model="tiny", **options):
        return self.service.request("POST", PATH, {"model": model, **body}, timeout=120, **options)

    def occupy(self, model="tiny"):
        """A stream that holds the slot, and one more that is the engine's look-ahead."""
        running = support.Stream(self.service, {"model": model, **ENDLESS}, PATH)
        next(running.events())
        ahead = threading.Thread(target=lambda: self.post(PROMPT, model), daemon=True)
        ahead.start()
        support.wait_until(lambda: self.under_way(model) == 2, 20, "the slot and the look-ahead are taken")
        return running

    def in_background(self, count, body, **options):
        answers = [None] * count

        def run(index):
            try:
                answers[index] = self.post(body, **options)
            except OSError as error:
                answers[index] = error

        threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(count)]
        for thread in threads:
            thread.start()
        return threads, answers

    def test_a_full_queue_a_deadline_and_a_departure(self):
        running = self.occupy()
        late = self.post(SHORT, headers={"x-tandem-deadline-ms": "300"})
        self.assertEqual(504, late.status)
        self.assertEqual("deadline_exceeded", support.error_of(late)["code"])
        self.assertIn("after 300 ms", support.error_of(late)["message"])
        support.wait_until(lambda: self.waiting() == 0, 5, "its place is free")

        # One key may have six of eight places; then its own share is full, for another key there is room.
        threads, answers = self.in_background(6, SHORT)
        support.wait_until(lambda: self.waiting() == 6, 20, "six wait")
        refused = self.post(SHORT)
        self.assertEqual(429, refused.status)
        self.assertIn("share", support.error_of(refused)["message"])
        after = int(refused.headers["retry-after"])
        self.assertTrue(1 <= after <= 60, after)
        other = self.new_key("other")
        body = json.dumps({"model": "tiny", **SHORT}).encode()
        raw = self.service.raw()
        raw.sendall(b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
                    + other.encode() + b"\r\nContent-Type: application/json\r\nContent-Length: "
                    + str(len(body)).encode() + b"\r\n\r\n" + body)
        support.wait_until(lambda: self.waiting() == 7, 20, "another key has a place")
        full = self.post(SHORT, key=self.new_key("third"))
        self.assertEqual(429, full.status)  # 9 open: slot, look-ahead and 7 wait
        self.assertIn("requests wait", support.error_of(full)["message"])
        raw.close()
        support.wait_until(lambda: self.waiting() == 6, 5, "who left has no place")

        running.vanish()
        for thread in threads:
            thread.join(timeout=120)
        self.assertEqual([200] * 6, [answer.status for answer in answers])
        places = sorted(int(answer.headers["x-tandem-queue"].split(",")[0].split("=")[1]) for answer in answers)
        self.assertEqual([1, 2, 3, 4, 5, 6], places)
        metrics = self.service.metrics()
        self.assertEqual(1, metrics['tandem_queue_refused_total{model_name="tiny",reason="key_share"}'])
        self.assertEqual(1, metrics['tandem_queue_refused_total{model_name="tiny",reason="queue_full"}'])

    def test_a_key_with_one_request_stands_before_a_key_with_many(self):
        running = self.occupy()
        order = []

        def run(name, key):
            if self.post(SHORT, key=key).status == 200:
                order.append(name)

        many = [threading.Thread(target=run, args=("many", True), daemon=True) for _ in range(5)]
        for thread in many:
            thread.start()
        support.wait_until(lambda: self.waiting() == 5, 20, "five wait")
        one = threading.Thread(target=run, args=("one", self.new_key("one")), daemon=True)
        one.start()
        support.wait_until(lambda: self.waiting() == 6, 20, "six wait")
        running.vanish()
        # The look-ahead is long; what ends it frees the order to be seen.
        for thread in [*many, one]:
            thread.join(timeout=200)
        self.assertEqual(6, len(order))
        self.assertLessEqual(order.index("one"), 2, order)

    def test_a_killed_engine_ends_each_waiting_request_once_and_touches_no_neighbour(self):
        running = self.occupy()  # held: a stream that is dropped frees its slot
        threads, answers = self.in_background(4, SHORT)
        support.wait_until(lambda: self.waiting() == 4, 20, "four wait")
        os.kill(self.service.engine_pid("tiny"), signal.SIGKILL)
        self.assertEqual(200, self.post(SHORT, "tiny2").status)
        for thread in threads:
            thread.join(timeout=30)
        for answer in answers:
            self.assertEqual(503, answer.status, answer)
            self.assertGreaterEqual(int(answer.headers["retry-after"]), 1)
        support.wait_until(lambda: self.service.status()["tiny"]["state"] == "ready", 60, "it is back", every=0.1)
        self.assertEqual(200, self.post(SHORT).status)
        self.assertEqual(0, self.waiting())
        running.vanish()

    def test_a_restart_in_order_refuses_those_that_wait(self):
        running = self.occupy()  # held: a stream that is dropped frees its slot
        threads, answers = self.in_background(3, SHORT)
        support.wait_until(lambda: self.waiting() == 3, 20, "three wait")
        began = time.monotonic()
        ordered = threading.Thread(target=lambda: self.service.ctl("model", "restart", "tiny", check=False), daemon=True)
        ordered.start()
        for thread in threads:
            thread.join(timeout=30)
        self.assertLess(time.monotonic() - began, 20)
        self.assertEqual([503] * 3, [answer.status for answer in answers])
        running.vanish()

    def test_headers_are_checked(self):
        bad = self.post(SHORT, headers={"x-tandem-priority": "urgent"})
        self.assertEqual(400, bad.status)
        self.assertEqual("x-tandem-priority", support.error_of(bad)["param"])
        good = self.post(SHORT, headers={"x-tandem-priority": "batch"})
        self.assertEqual("position=0, wait_ms=0", good.headers["x-tandem-queue"])


if __name__ == "__main__":
    support.main()
