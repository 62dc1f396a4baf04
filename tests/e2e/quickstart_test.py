#!/usr/bin/env python3
"""./quickstart in its small forms: what it prints, leaves behind, and takes away again.

Runs only on the build that ./quickstart itself makes (preset release), with a state folder of its own.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

import support

DEMO_MARK = "TANDEM_DEMO_STATE"


class QuickstartTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-quickstart-"))
        self.state = self.folder / "state"
        self.environment = {**os.environ, "TANDEM_DEMO_DIR": str(self.state)}
        self.environment.pop("TANDEM_BIN_DIR", None)
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(self.kill_rest)

    def kill_rest(self):
        for pid in self.processes():
            support.kill_pid(pid, signal.SIGKILL)

    def processes(self):
        mark = f"{DEMO_MARK}={self.state}".encode()
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    marked = mark in (entry / "environ").read_bytes().split(b"\0")
                    if marked and (entry / "comm").read_text().startswith("tandem"):
                        found.append(int(entry.name))
                except OSError:
                    pass
        return [pid for pid in found if support.process_alive(pid)]

    def names(self):
        return sorted(pathlib.Path(f"/proc/{pid}/comm").read_text().strip() for pid in self.processes())

    def quickstart(self, *arguments, code=0, **environment):
        """Returns what it printed; waits for the end of its output, so nothing may keep that open."""
        done = subprocess.run([str(support.ROOT / "quickstart"), *arguments], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500, check=False,
                              cwd=self.folder, env={**self.environment, **environment})
        self.assertEqual(code, done.returncode, done.stdout)
        return done.stdout

    def chat(self, model):
        body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
        call = urllib.request.Request((self.state / "address").read_text().strip() + "/v1/chat/completions",
                                      json.dumps(body).encode(),
                                      {"Content-Type": "application/json",
                                       "Authorization": "Bearer " + (self.state / "key").read_text().strip()})
        with urllib.request.urlopen(call, timeout=60) as answer:
            return json.load(answer)

    def test_small(self):
        said = self.quickstart("--small")
        address = (self.state / "address").read_text()
        self.assertRegex(address, r"^http://127\.0\.0\.1:\d+\n$")
        key = (self.state / "key").read_text().strip()
        for text in (address.strip(), key, "./quickstart stop", "The capital of France is Paris."):
            self.assertIn(text, said)
        self.assertEqual(0o600, (self.state / "key").stat().st_mode & 0o777)
        self.assertTrue((self.state / "models" / "tiny-hybrid-q8_0.gguf").resolve().samefile(support.TINY))
        self.assertTrue((self.state / "log").stat().st_size > 0)
        config = (self.state / "config.toml").read_text()
        self.assertEqual(2, len(re.findall(r"^slots = 4$", config, re.M)))
        self.assertTrue(all(int(value) >= 4096 for value in re.findall(r"context_tokens = (\d+)", config)))
        for model in ("default", "optional"):
            self.assertGreater(self.chat(model)["usage"]["completion_tokens"], 0)

        running = self.processes()
        self.assertEqual(["tandem-engine", "tandem-engine", "tandem-guard", "tandemd"], self.names())
        again = self.quickstart("--small")
        self.assertIn("already running", again)
        self.assertEqual(sorted(running), sorted(self.processes()), "repeating changes nothing")
        self.assertEqual(key, (self.state / "key").read_text().strip())

        self.assertIn("tiny-hybrid-2", self.quickstart("--pair", "tiny-hybrid", "tiny-hybrid", "--no-ask"))
        self.assertFalse(set(running) & set(self.processes()), "another pair is another service")
        self.quickstart("stop")
        self.assertEqual([], self.processes())
        self.quickstart("stop")

    def test_own_files_and_a_killed_daemon(self):
        shutil.copy(support.TINY, self.folder / "Mine.gguf")
        self.quickstart("--default", "Mine.gguf", "--optional", str(support.TINY), "--no-ask")
        self.assertEqual("mine", self.chat("default")["model"])
        daemon = [pid for pid in self.processes()
                  if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "tandemd"]
        self.assertEqual(1, len(daemon))
        os.kill(daemon[0], signal.SIGKILL)
        support.wait_until(lambda: not support.process_alive(daemon[0]), 10, "it is dead")
        self.assertEqual(["tandem-engine", "tandem-engine", "tandem-guard"], self.names(), "they live on")
        self.quickstart("stop")
        self.assertEqual([], self.processes())

    def test_without_a_network(self):
        began = time.monotonic()
        said = self.quickstart("--small", "--no-ask", XDG_CACHE_HOME=str(self.folder / "cache"), PIP_NO_INDEX="1",
                               PIP_FIND_LINKS=str(self.folder))
        self.assertIn("falls back to two copies of the tiny hybrid", said)
        self.assertLess(time.monotonic() - began, 120)
        self.chat("default")
        self.chat("optional")
        self.quickstart("stop")
        self.assertIn("could not be downloaded", self.quickstart(
            "--pair", "smollm2-135m", "tiny-hybrid", code=1, XDG_CACHE_HOME=str(self.folder / "cache"), PIP_NO_INDEX="1",
            PIP_FIND_LINKS=str(self.folder)))

    def test_wrong_use(self):
        self.quickstart("--pair", "tiny-hybrid", code=2)
        self.quickstart("--pair", "tiny-hybrid", "unheard-of", code=2)
        self.quickstart("--small", "--pair", "tiny-hybrid", "tiny-hybrid", code=2)
        self.quickstart("--default", str(support.TINY), code=2)
        self.assertIn("no chat template", self.quickstart("--pair", "gemma3-270m", "tiny-hybrid", code=1))
        self.quickstart("--default", "nothing.gguf", "--optional", str(support.TINY), code=1)
        (self.folder / "text.gguf").write_text("no model")
        self.assertIn("no GGUF", self.quickstart("--default", "text.gguf", "--optional", str(support.TINY), code=1))
        self.quickstart("stop")


class ReadmeTest(unittest.TestCase):
    """The README's commands, in their --small form."""

    def test_commands(self):
        readme = (support.ROOT / "README.md").read_text()
        blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", readme, re.S | re.M)
        self.assertGreaterEqual(len(blocks), 4)
        with tempfile.TemporaryDirectory(prefix="tandem-readme-") as folder:
            environment = {**os.environ, "TANDEM_DEMO_DIR": folder}
            environment.pop("TANDEM_BIN_DIR", None)
            try:
                for language, text in blocks:
                    text = re.sub(r"^\./quickstart$", "./quickstart --small", text, flags=re.M)
                    text = re.sub(r"^\./check$", "./check -N", text, flags=re.M)
                    text = text.replace(".tandem/", folder + "/")
                    command = ["bash", "-euo", "pipefail", "-c", text] if language == "sh" else [sys.executable, "-c", text]
                    done = subprocess.run(command, cwd=support.ROOT, env=environment, stdin=subprocess.DEVNULL, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=500, check=False)
                    self.assertEqual(0, done.returncode, f"{text}\n---\n{done.stdout}")
                    self.assertTrue(done.stdout.strip(), text)
            finally:
                subprocess.run([str(support.ROOT / "quickstart"), "stop"], env=environment, stdin=subprocess.DEVNULL,
                               check=False)


if __name__ == "__main__":
    if support.BIN != support.ROOT / "build" / "release" / "bin":
        print("skipped: ./quickstart builds preset release, this is another build")
        sys.exit(77)
    support.main()
