"""What the end-to-end tests share: a service of their own on free ports, raw HTTP, processes, metrics.

No product code: the service is driven as a user would. A Service lives in a temporary folder, marks its
processes through their environment, and ends every one of them by its pid when the test is over.
"""
import atexit
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import engine_kinds

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TANDEM_BIN_DIR") or ROOT / "build" / "release" / "bin").absolute()
TINY = ROOT / "tests" / "models" / "tiny-hybrid-q8_0.gguf"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tandem" / "models"
SMOLLM = CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"
MARK = "TANDEM_E2E_STATE"
ENGINE = engine_kinds.chosen()
# Sanitizers and a busy machine are slow; deadlines of waits are generous, deadlines that are tested are not.
READY_S = 120
# Others use this machine too: where memory is not what a test is about, its gate and levels are out of the way.
NO_FLOORS = '\n'.join(['yellow = "16MiB"', 'orange = "8MiB"', 'red = "4MiB"', 'black = "2MiB"', 'floor = "16MiB"',
                       'reclaim = "never"'])


def wait_until(condition, seconds, what, every=0.02):
    """The first true value of condition(); fails the test after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(every)


def process_alive(pid):
    """Running, and not just a zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def resident_bytes(pid, key="VmRSS"):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"/proc/{pid}/status has no {key}")


def kill_pid(pid, number):
    """Through a pidfd: a pid that was used anew meanwhile is not hit."""
    with contextlib.suppress(ProcessLookupError, OSError):
        descriptor = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


class Answer:
    """One HTTP answer, read whole."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = {name.lower(): value for name, value in headers}
        self.body = body

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:300]!r}>"


class Service:
    """A tandemd with two engines. Use as a context manager, or start() and close().

    models: (name, file) or (name, file, keys of its own), the default model first; kinds: the engines that compute them."""

    def __init__(self, models=None, server="", limits="", engines="", lease="", model_keys=None,
                 memory=NO_FLOORS, kinds=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-e2e-"))
        self.models = models or [("tiny", TINY), ("tiny2", TINY)]
        self.model_keys = model_keys or {}
        self.kinds = kinds or [ENGINE] * len(self.models)
        self.extra = {"server": server, "limits": limits, "engines": engines, "lease": lease, "memory": memory}
        self.daemon = None
        self.port = None
        self.key = None
        self.log = self.folder / "log"
        atexit.register(self.close)  # whatever ends this script: a class's own cleanups miss SystemExit

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    # --- Start and end ---

    def write_config(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", self.port or 0))
            self.port = probe.getsockname()[1]
        keys = {"context_tokens": 4096, "slots": 4, **self.model_keys}
        text = ["[server]", f'listen = "127.0.0.1:{self.port}"', f'state_dir = "{self.folder}/state"',
                f'run_dir = "{self.folder}/run"', self.extra["server"],
                "[limits]", self.extra["limits"], "[engines]", self.extra["engines"],
                "[memory]", self.extra["memory"]]
        if self.extra["lease"]:
            text += ["[lease]", self.extra["lease"]]
        for role, kind, (name, file, *own) in zip(("default", "optional"), self.kinds, self.models):
            text += [f"[model.{role}]", f'name = "{name}"', f'aliases = ["{name}-alias"]']
            table = {**engine_kinds.keys_of(kind, file), **keys, **(own[0] if own else {})}
            text += [f"{key} = {engine_kinds.toml(value)}" for key, value in table.items()]
        (self.folder / "config.toml").write_text("\n".join(text) + "\n")
        (self.folder / "run").mkdir(exist_ok=True, mode=0o700)

    def start(self, wait=True):
        if not (self.folder / "config.toml").exists():
            self.write_config()
        with open(self.log, "ab") as log:
            self.daemon = subprocess.Popen(
                [str(BIN / "tandemd"), "--config", str(self.folder / "config.toml")], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True, env={**os.environ, MARK: str(self.folder)})
        if wait:
            self.wait_ready()
            if self.key is None:
                self.key = json.loads(self.ctl("key", "add", "e2e", "--scope", "inference", "--json"))["key"]

    def close(self):
        """Ends everything that carries our mark and removes the folder; the log is shown when it went wrong."""
        atexit.unregister(self.close)
        failed = sys.exc_info()[0] is not None
        if self.daemon and self.daemon.poll() is None:
            self.daemon.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.daemon.wait(timeout=30)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.processes():
                kill_pid(pid, number)
            with contextlib.suppress(AssertionError):
                wait_until(lambda: not self.processes(), 10, "processes end")
        if self.daemon:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.daemon.wait(timeout=5)
        if (failed or os.environ.get("TANDEM_E2E_KEEP")) and self.log.exists():
            print(f"--- end of {self.log} ---\n{self.log_tail()}\n---", file=sys.stderr)
        if not os.environ.get("TANDEM_E2E_KEEP"):
            shutil.rmtree(self.folder, ignore_errors=True)

    def log_tail(self, lines=40):
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-lines:])

    def processes(self):
        """Pids of everything alive that was started for this folder."""
        found = []
        mark = f"{MARK}={self.folder}".encode()
        place = os.fsencode(f"{self.folder}/")
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
                command = (entry / "cmdline").read_bytes().split(b"\0")
                name = (entry / "comm").read_text().strip()
            except OSError:
                continue
            # Ours, and engines of others, which inherit the mark.
            if mark in environment or (name.startswith("tandem") and any(a.startswith(place) for a in command)):
                if process_alive(int(entry.name)):
                    found.append(int(entry.name))
        return found

    # --- Administration ---

    def ctl(self, *arguments, check=True, timeout=60):
        done = subprocess.run([str(BIN / "tandemctl"), "--config", str(self.folder / "config.toml"), *arguments],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"tandemctl {arguments} gave {done.returncode}: {done.stdout} {done.stderr}")
        return done.stdout if check else done

    def status(self):
        """{model name: its status}, empty while the admin socket does not answer."""
        done = self.ctl("status", "--json", check=False)
        if done.returncode != 0:
            return {}
        return {model["name"]: model for model in json.loads(done.stdout)["models"]}

    def wait_ready(self, seconds=READY_S):
        def ready():
            if self.daemon.poll() is not None:
                raise AssertionError(f"tandemd ended with {self.daemon.returncode}\n{self.log_tail()}")
            status = self.status()
            return status if len(status) == len(self.models) and all(
                model["state"] == "ready" for model in status.values()) else None
        return wait_until(ready, seconds, "all models ready", every=0.1)

    def engine_pid(self, name):
        return self.status()[name]["pid"]

    # --- HTTP ---

    @property
    def base(self):
        return f"http://127.0.0.1:{self.port}"

    def sdk(self, **options):
        import openai  # only the tests that run under with_sdk ask for it
        options.setdefault("api_key", self.key)
        options.setdefault("max_retries", 0)
        options.setdefault("timeout", 120)
        return openai.OpenAI(base_url=f"{self.base}/v1", **options)

    def request(self, method, path, body=None, headers=None, key=True, timeout=60):
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        sent = dict(headers or {})
        if key:
            sent.setdefault("Authorization", f"Bearer {self.key if key is True else key}")
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        if isinstance(body, str):
            body = body.encode()
        try:
            connection.request(method, path, body=body, headers=sent)
            answer = connection.getresponse()
            return Answer(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()

    def chat(self, text, model="default", **extra):
        body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 64, **extra}
        return self.request("POST", "/v1/chat/completions", body)

    def raw(self, timeout=30):
        """A bare connection, for what no HTTP client would send."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def raw_exchange(self, data, timeout=30):
        """Sends bytes, reads to the end; returns everything that came back."""
        with self.raw(timeout) as connection:
            with contextlib.suppress(ConnectionError):  # an early refusal may close while we still send
                connection.sendall(data)
            received = b""
            with contextlib.suppress(ConnectionError):
                while block := connection.recv(65536):
                    received += block
            return received

    # --- Numbers ---

    def metrics(self):
        """{name with labels: value} of /metrics."""
        answer = self.request("GET", "/metrics", key=self.admin_key())
        if answer.status != 200:
            raise AssertionError(f"/metrics: {answer}")
        values = {}
        for line in answer.body.decode().splitlines():
            if line and line[0] != "#":
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values

    def admin_key(self):
        if not getattr(self, "_admin_key", None):
            made = json.loads(self.ctl("key", "add", "e2e-admin", "--scope", "inference,admin", "--json"))
            self._admin_key = made["key"]
        return self._admin_key

    def slots_busy(self, name):
        return self.status()[name]["slots_busy"]


class Stream:
    """A streaming chat over a raw connection: events as they come, and a way to vanish."""

    def __init__(self, service, body, path="/v1/chat/completions", timeout=120, headers=None):
        self.connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=timeout)
        self.connection.request("POST", path, json.dumps({**body, "stream": True}), {
            "Authorization": f"Bearer {service.key}", "Content-Type": "application/json", **(headers or {})})
        self.answer = self.connection.getresponse()
        self.status = self.answer.status

    def events(self):
        """Data of each event, [DONE] included; ends when the stream does."""
        for line in self.answer:
            line = line.strip()
            if line.startswith(b"data: "):
                data = line[6:]
                yield "[DONE]" if data == b"[DONE]" else json.loads(data)

    def vanish(self):
        """Closes the connection as a killed client would."""
        if self.connection.sock is not None:
            self.connection.sock.close()
        self.answer.close()
        self.connection.close()


def in_threads(count, work):
    """work(i) for each i at once; returns the results, an exception in place of a result."""
    results = [None] * count

    def run(index):
        try:
            results[index] = work(index)
        except Exception as error:  # noqa: BLE001: the test looks at it
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    return results


def error_of(answer):
    """The OpenAI error object of an answer; its form is checked."""
    error = answer.json()["error"]
    missing = {"message", "type", "param", "code"} - set(error)
    if missing or not re.search(r"\w", error["message"] or ""):
        raise AssertionError(f"no OpenAI error: {error}")
    return error


def main():
    missing = [name for name in ("tandemd", "tandemctl", "tandem-engine") if not (BIN / name).exists()]
    if missing:
        print(f"skipped: {BIN} lacks {', '.join(missing)}")
        sys.exit(77)
    results = []

    class Result(unittest.TextTestResult):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            results.append(self)

    def end(*_):
        """A time-out of ctest: the running test cleans up, no further one starts."""
        for result in results:
            result.stop()
        sys.exit(143)

    signal.signal(signal.SIGTERM, end)
    unittest.main(testRunner=unittest.TextTestRunner(verbosity=2, resultclass=Result))
