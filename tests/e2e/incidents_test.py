#!/usr/bin/env python3
"""What goes wrong is noticed, said once, and over when it is over: an engine that hangs, a full disk, a disk that turns
read-only. The disks are small file systems of this test's own; where mounting is not permitted those tests are skipped."""
import atexit
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

import support

WAIT_S = 30


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)


class Desk:
    """Questions about incidents of one service."""

    def __init__(self, service):
        self.service = service

    def list(self, *arguments):
        return json.loads(self.service.ctl("incidents", "--json", *arguments))["incidents"]

    def open(self, kind):
        return next((i for i in self.list("--open") if i["kind"] == kind), None)

    def wait_open(self, kind):
        return support.wait_until(lambda: self.open(kind), WAIT_S, f"incident {kind}", every=0.2)

    def wait_closed(self, kind):
        support.wait_until(lambda: self.open(kind) is None, WAIT_S, f"the end of incident {kind}", every=0.2)
        return next(i for i in self.list() if i["kind"] == kind)

    def log_lines(self, kind):
        """(raised, repeated, closed): how often the log has each kind of line."""
        lines = [line for line in self.service.log.read_text().splitlines() if f" {kind}" in line and ": incident " in line]
        closed = [line for line in lines if " closed: " in line]
        repeated = [line for line in lines if " times: " in line]
        return len(lines) - len(closed) - len(repeated), len(repeated), len(closed)

    def exit_code(self, *arguments):
        return self.service.ctl("incidents", "--exit-code", *arguments, check=False).returncode

    def ready_body(self):
        answer = self.service.request("GET", "/readyz", key=False)
        assert answer.status == 200, answer
        return {name: value for name, value in answer.json().items() if name != "memory"}


class SilentEngineTest(unittest.TestCase):
    def setUp(self):
        self.service = support.Service(engines='silence_deadline = "2s"')
        self.addCleanup(self.service.close)
        self.service.start()
        self.desk = Desk(self.service)

    def test_an_engine_that_hangs_is_an_incident_until_it_answers(self):
        desk = self.desk
        self.assertEqual([], desk.list())
        self.assertEqual({"status": "ok"}, desk.ready_body())
        self.assertEqual(0, desk.exit_code())
        self.service.admin_key()
        pid = self.service.engine_pid("tiny2")
        support.kill_pid(pid, signal.SIGSTOP)
        try:
            incident = desk.wait_open("engine_silent")
            self.assertEqual("tiny2", incident["model"])
            self.assertEqual("error", incident["severity"])
            self.assertGreaterEqual(incident["numbers"]["silent_s"], 2)
            self.assertIn("tandemctl model restart", incident["next"])
            self.assertEqual(200, self.service.chat("Hello", "tiny").status)
            self.assertEqual({"status": "degraded", "troubles": ["engine_silent"]}, desk.ready_body())
            self.assertEqual(5, desk.exit_code())
            text = self.service.ctl("incidents", "--open")
            self.assertIn("OPEN  engine_silent  tiny2", text)
            self.assertIn("Next: ", text)
            self.service.ctl("incidents", "ack", str(incident["id"]))
            self.assertEqual(0, desk.exit_code())
            self.assertEqual(1, self.service.ctl("incidents", "ack", "9999", check=False).returncode)
            self.assertEqual(2, self.service.ctl("incidents", "ack", "x", check=False).returncode)
            self.assertEqual(2, self.service.ctl("incidents", "--since", "soon", check=False).returncode)
        finally:
            support.kill_pid(pid, signal.SIGCONT)
        over = desk.wait_closed("engine_silent")
        self.assertEqual("it is over", over["cleared_why"])
        self.assertIsNotNone(over["acknowledged_at"])
        self.assertEqual((1, 0, 1), desk.log_lines("engine_silent"))
        self.assertEqual({"status": "ok"}, desk.ready_body())
        metrics = self.service.metrics()
        self.assertEqual(0, metrics['tandem_incidents_open{kind="engine_silent",model="tiny2"}'])
        self.assertEqual(1, metrics['tandem_incidents_total{kind="engine_silent"}'])
        self.assertEqual(1, len(desk.list("--since", "1h")))

        # What is stored outlives a kill -9.
        support.kill_pid(self.service.daemon.pid, signal.SIGKILL)
        self.service.daemon.wait()
        self.service.start()
        self.assertEqual([over], [i for i in desk.list() if i["kind"] == "engine_silent"])


class Disk:
    """A small file system on which the service keeps its state."""

    def __init__(self, test, service):
        self.place = service.folder / "state"
        self.place.mkdir(mode=0o700)
        self.test = test

    def unmount(self):
        run("umount", "-l", str(self.place))

    def mount(self, *arguments):
        done = run("mount", *arguments, str(self.place))
        if done.returncode != 0:
            self.test.skipTest(f"mounting is not permitted here: {done.stderr.strip()}")
        atexit.register(self.unmount)
        self.test.addCleanup(self.unmount)

    def fill(self):
        """Takes what is left, to the last byte."""
        with contextlib.suppress(OSError), open(self.place / "filler", "ab", buffering=0) as filler:
            while filler.write(b"\0" * 65536):
                pass
        with contextlib.suppress(OSError), open(self.place / "filler", "ab", buffering=0) as filler:
            while filler.write(b"\0"):
                pass

    def free(self):
        (self.place / "filler").unlink()


class DiskTest(unittest.TestCase):
    def setUp(self):
        if os.getuid() != 0:
            self.skipTest("mounting needs root")
        self.service = support.Service(models=[("tiny", support.TINY)])
        self.addCleanup(self.service.close)
        self.desk = Desk(self.service)
        self.disk = Disk(self, self.service)

    def respond(self, **extra):
        body = {"model": "tiny", "input": "Hello", "max_output_tokens": 16, "store": True, **extra}
        return self.service.request("POST", "/v1/responses", body)

    def records(self):
        return json.loads(self.service.ctl("status", "--json"))["store"]

    def check_that_it_serves(self):
        for _ in range(5):
            self.assertEqual(200, self.service.chat("Hello", "tiny").status)
        self.assertEqual(401, self.service.request("GET", "/v1/models", key="tdm_wrong").status)
        self.assertEqual(200, self.service.request("GET", "/v1/models").status)
        body = self.desk.ready_body()
        self.assertEqual("degraded", body["status"])
        self.assertIn("store_unwritable", body["troubles"])
        refused = self.respond()
        self.assertEqual(503, refused.status)
        error = support.error_of(refused)
        self.assertEqual("store_unavailable", error["code"])
        self.assertEqual("store", error["param"])
        self.assertIn("retry-after", refused.headers)
        self.assertEqual(200, self.respond(store=False).status)
        added = self.service.ctl("key", "add", "late", check=False)
        self.assertEqual(1, added.returncode)
        self.assertRegex(added.stderr, "full|readonly|read-only|disk")

    def test_a_full_disk_costs_no_answer_and_no_record(self):
        self.disk.mount("-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs")
        self.service.start()
        self.service.admin_key()
        kept = self.respond()
        self.assertEqual(200, kept.status)
        self.desk.wait_open("disk_low")  # the whole disk is smaller than that
        self.assertEqual({"status": "ok"}, self.desk.ready_body())  # a warning, no more
        self.disk.fill()
        self.assertEqual(200, self.service.chat("Hello", "tiny").status)
        incident = self.desk.wait_open("store_unwritable")
        self.assertEqual("error", incident["severity"])
        self.assertIn("full", incident["text"])
        before = self.records()
        self.assertFalse(before["writable"])
        self.assertGreaterEqual(before["records_waiting"], 1)
        self.check_that_it_serves()
        # What was stored before can still be read.
        found = self.service.request("GET", "/v1/responses/" + kept.json()["id"])
        self.assertEqual(kept.json(), found.json())
        waiting = self.records()["records_waiting"]
        self.assertGreater(waiting, before["records_waiting"])

        # kill -9 on a full disk: it starts again, and knows its keys.
        support.kill_pid(self.service.daemon.pid, signal.SIGKILL)
        self.service.daemon.wait()
        self.service.start()
        self.assertEqual(200, self.service.chat("Hello", "tiny").status)
        self.desk.wait_open("store_unwritable")
        self.check_that_it_serves()
        waiting = self.records()["records_waiting"]
        self.assertGreater(waiting, 5)

        self.disk.free()
        self.desk.wait_closed("store_unwritable")
        after = self.records()
        self.assertTrue(after["writable"])
        self.assertEqual(0, after["records_waiting"])
        self.assertEqual(0, after["records_dropped"])
        self.assertGreaterEqual(after["records_written"], waiting)
        self.assertEqual({"status": "ok"}, self.desk.ready_body())
        self.assertEqual(200, self.respond().status)
        self.service.ctl("key", "add", "late")

    def test_a_disk_that_is_read_only_from_the_beginning(self):
        self.disk.mount("-t", "tmpfs", "-o", "size=16m,mode=700", "tmpfs")
        self.service.start()
        self.service.admin_key()
        kept = self.respond()
        self.assertEqual(200, kept.status)
        # kill -9: what is in the log of the database must be read from the copy as well.
        support.kill_pid(self.service.daemon.pid, signal.SIGKILL)
        self.service.daemon.wait()
        for pid in self.service.processes():  # the guard holds its black box open
            if pathlib.Path(f"/proc/{pid}/comm").read_text().startswith("tandem-guard"):
                support.kill_pid(pid, signal.SIGKILL)
        done = support.wait_until(lambda: run("mount", "-o", "remount,ro", str(self.disk.place)).returncode == 0 or None,
                                  WAIT_S, "the disk to be read-only")
        self.assertTrue(done)
        self.service.start()
        incident = self.desk.wait_open("store_unwritable")
        self.assertIn("read-only", incident["text"].replace("readonly", "read-only"))
        self.check_that_it_serves()
        found = self.service.request("GET", "/v1/responses/" + kept.json()["id"])
        self.assertEqual(kept.json(), found.json())
        before = self.records()
        self.assertFalse(before["writable"])
        self.assertGreater(before["records_waiting"], 5)
        self.assertEqual(0, run("mount", "-o", "remount,rw", str(self.disk.place)).returncode)
        self.desk.wait_closed("store_unwritable")
        after = self.records()
        self.assertTrue(after["writable"])
        self.assertEqual((0, 0), (after["records_waiting"], after["records_dropped"]))
        self.assertEqual({"status": "ok"}, self.desk.ready_body())
        self.service.ctl("key", "add", "late")
        self.assertEqual([], list(self.service.folder.rglob("store-copy.db*")))
        support.wait_until(lambda: (self.disk.place / "blackbox").exists() or None, WAIT_S, "the guard's black box")

    def test_a_run_directory_that_is_read_only_prevents_a_start_and_says_what_to_do(self):
        self.service.write_config()
        self.disk.place = self.service.folder / "run"
        self.disk.place.mkdir(exist_ok=True)
        self.disk.mount("-t", "tmpfs", "-o", "ro,size=1m", "tmpfs")
        done = run(str(support.BIN / "tandemd"), "--config", str(self.service.folder / "config.toml"))
        self.assertEqual(1, done.returncode)
        self.assertRegex(done.stderr, r"^(<3>)?tandemd: server\.run_dir: cannot write to \S+/run: Read-only file system: .*choose a directory.*\n$")

    def mount_ext4(self):
        image = pathlib.Path(tempfile.mkdtemp(prefix="tandem-e2e-disk-"))
        self.addCleanup(shutil.rmtree, image, ignore_errors=True)
        file = image / "disk"
        with open(file, "wb") as out:
            out.truncate(32 << 20)
        if shutil.which("mkfs.ext4") is None or run("mkfs.ext4", "-q", "-O", "^has_journal", str(file)).returncode != 0:
            self.skipTest("there is no mkfs.ext4")
        self.disk.mount("-o", "loop", str(file))

    def set_read_only(self, yes):
        """The files of the store; a file system that is written to cannot be remounted and come back."""
        for file in self.disk.place.glob("tandem.db*"):
            done = run("chattr", "+i" if yes else "-i", str(file))
            if done.returncode != 0:
                self.skipTest(f"files cannot be made read-only here: {done.stderr.strip()}")

    def test_what_waited_for_a_read_only_store_is_written_when_it_is_not_any_more(self):
        self.mount_ext4()
        self.service.start()
        self.service.admin_key()
        self.assertEqual(200, self.service.chat("Hello", "tiny").status)
        support.wait_until(lambda: self.records()["records_written"] == 1, WAIT_S, "the first record")
        self.addCleanup(self.set_read_only, False)
        self.set_read_only(True)
        self.assertEqual(200, self.service.chat("Hello", "tiny").status)
        self.desk.wait_open("store_unwritable")
        self.check_that_it_serves()
        before = self.records()
        self.assertFalse(before["writable"])
        self.assertEqual(1, before["records_written"])
        self.assertGreater(before["records_waiting"], 5)
        self.set_read_only(False)
        self.desk.wait_closed("store_unwritable")
        after = self.records()
        self.assertTrue(after["writable"])
        self.assertEqual((0, 0), (after["records_waiting"], after["records_dropped"]))
        self.assertEqual(1 + before["records_waiting"], after["records_written"])
        self.assertEqual({"status": "ok"}, self.desk.ready_body())
        self.service.ctl("key", "add", "late")

    def test_a_disk_that_turns_read_only_costs_no_answer(self):
        self.mount_ext4()
        self.service.start()
        self.service.admin_key()
        self.assertEqual(200, self.service.chat("Hello", "tiny").status)
        # As the kernel does it by itself after an error of the disk.
        aborted = run("mount", "-o", "remount,abort", str(self.disk.place))
        self.assertEqual(0, aborted.returncode, aborted.stderr)
        self.assertEqual(200, self.service.chat("Hello", "tiny").status)
        self.desk.wait_open("store_unwritable")
        self.check_that_it_serves()
        # An ordered stop does not hang on it.
        support.kill_pid(self.service.daemon.pid, signal.SIGTERM)
        self.assertEqual(0, self.service.daemon.wait(timeout=60))


if __name__ == "__main__":
    support.main()
