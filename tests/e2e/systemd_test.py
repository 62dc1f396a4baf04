#!/usr/bin/env python3
"""What tandemd owes systemd: readiness, watchdog, passed sockets, units that verify. No systemd has to run."""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import support

UNITS = support.ROOT / "packaging" / "systemd"


class NotifyTest(unittest.TestCase):
    def setUp(self):
        self.service = support.Service()
        self.addCleanup(self.service.close)
        self.service.write_config()
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.notify.close)
        self.notify.bind(str(self.service.folder / "notify"))
        self.notify.settimeout(0.2)

    def messages(self, seconds, until=None):
        """Everything that was notified meanwhile, one assignment an entry."""
        found = []
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not (until and until in found):
            try:
                found += self.notify.recv(4096).decode().strip().splitlines()
            except TimeoutError:
                pass
        return found

    def start(self, **environment):
        with open(self.service.log, "ab") as log:
            self.service.daemon = subprocess.Popen(
                [str(support.BIN / "tandemd"), "--config", str(self.service.folder / "config.toml")], stdout=log,
                stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, support.MARK: str(self.service.folder),
                     "NOTIFY_SOCKET": str(self.service.folder / "notify"), **environment})

    def test_ready_watchdog_and_stopping(self):
        self.start(WATCHDOG_USEC="1000000")
        begun = self.messages(60, until="READY=1")
        self.assertIn("READY=1", begun)
        self.assertEqual("ready", self.service.status()["tiny"]["state"], "READY only when the default model answers")
        self.assertEqual(200, self.service.request("GET", "/readyz", key=False).status)
        beats = self.messages(2.5).count("WATCHDOG=1")
        self.assertTrue(3 <= beats <= 20, beats)
        self.service.daemon.send_signal(signal.SIGTERM)
        self.assertIn("STOPPING=1", self.messages(10, until="STOPPING=1"))
        self.assertEqual(0, self.service.daemon.wait(timeout=60))

    def test_the_optional_model_does_not_block_readiness(self):
        broken = self.service.folder / "broken.gguf"
        broken.write_bytes(b"GGUF" + b"\0" * 100)
        config = self.service.folder / "config.toml"
        head, tail = config.read_text().split("[model.optional]")
        config.write_text(head + "[model.optional]" + re.sub(r'file = "[^"]*"', f'file = "{broken}"', tail))
        self.start()
        self.assertIn("READY=1", self.messages(60, until="READY=1"))
        support.wait_until(lambda: self.service.status().get("tiny2", {}).get("state") in ("backoff", "failed"), 30,
                           "the broken model is reported")
        self.service.key = support.json.loads(self.service.ctl("key", "add", "e2e", "--json"))["key"]
        self.assertEqual(200, self.service.chat("18 + 73 = ?", "default").status)
        self.assertEqual(503, self.service.chat("18 + 73 = ?", "optional").status)

    def test_passed_socket(self):
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        self.addCleanup(listener.close)
        port = listener.getsockname()[1]
        script = 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" --config "$1"'
        with open(self.service.log, "ab") as log:
            self.service.daemon = subprocess.Popen(
                ["bash", "-c", f"exec 3<&{listener.fileno()}; {script}", str(support.BIN / "tandemd"),
                 str(self.service.folder / "config.toml")], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                start_new_session=True, pass_fds=[listener.fileno()],
                env={**os.environ, support.MARK: str(self.service.folder)})
        self.service.wait_ready()
        self.service.port = port
        self.assertEqual(200, self.service.request("GET", "/readyz", key=False).status)


class UnitFilesTest(unittest.TestCase):
    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze here")
    def test_units_verify(self):
        with tempfile.TemporaryDirectory() as folder:
            for unit in UNITS.iterdir():
                # The programs are not installed here; everything else is checked as it is.
                text = unit.read_text().replace("/usr/bin/tandem", f"{support.BIN}/tandem")
                (pathlib.Path(folder) / unit.name).write_text(text)
            for unit in pathlib.Path(folder).iterdir():
                done = subprocess.run(["systemd-analyze", "verify", "--recursive-errors=yes", str(unit)],
                                      capture_output=True, text=True, check=False)
                self.assertEqual((0, ""), (done.returncode, done.stdout + done.stderr), unit.name)


if __name__ == "__main__":
    support.main()
