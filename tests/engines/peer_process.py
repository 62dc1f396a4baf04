"""A real engine of others as a child of a test or of the recorder: where it is, its start, its end, its words.

Its whole process group is ended by pid; its output goes to a file. Nothing here installs anything.
"""
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

import exchange

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
TOOLS = {"llama-server": ROOT / "tools" / "peer_llama_server", "vllm": ROOT / "tools" / "peer_vllm"}
START_S = {"llama-server": 120, "vllm": 300}


def end_on_sigterm():
    """For the main program: what it started is ended by its context managers, also when it is told to stop."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def find(engine):
    """The program's path, or None when it is not installed. TANDEM_PEER_VLLM and the like name another build."""
    if named := os.environ.get("TANDEM_PEER_" + engine.upper().replace("-", "_")):
        return named
    done = subprocess.run([TOOLS[engine], "--present"], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(engine):
    """Bounded memory, two threads, no look at networks."""
    extra = {"vllm": {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1",
                      "OMP_NUM_THREADS": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}}.get(engine, {})
    return {**os.environ, **extra}


def command_line(engine, program, model, port, arguments):
    if engine == "llama-server":
        return [program, "--model", str(model), "--host", "127.0.0.1", "--port", str(port), *arguments]
    return [program, "serve", str(model), "--host", "127.0.0.1", "--port", str(port), *arguments]


def resident_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


class Peer:
    """One started engine. Use as a context manager."""

    def __init__(self, engine, model, arguments=(), port=None, extra_environment=None, address_bytes_max=None):
        self.engine = engine
        self.port = port or free_port()
        program = find(engine)
        if program is None:
            raise FileNotFoundError(f"{engine} is not installed: {TOOLS[engine].name} makes it")
        self.model = pathlib.Path(model)
        self.arguments = list(arguments)
        with tempfile.NamedTemporaryFile(prefix=f"{engine}-", suffix=".log", delete=False) as file:
            self.log = pathlib.Path(file.name)
        self.started = time.monotonic()
        command = command_line(engine, program, model, self.port, self.arguments)
        if address_bytes_max is not None:  # its own end, and nobody else's
            command = ["prlimit", f"--as={address_bytes_max}", *command]
        with open(self.log, "wb") as output:
            self.child = subprocess.Popen(command,
                                          stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                                          env={**environment(engine), **(extra_environment or {})})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def group(self):
        """Pids of its process group that are alive."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                if int(fields[2]) == self.child.pid and fields[0] not in "ZX":
                    found.append(int(entry.name))
        return found

    def memory_bytes(self):
        """(resident, proportional) of the whole group."""
        resident = proportional = 0
        for pid in self.group():
            for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Rss:"):
                    resident += int(line.split()[1]) * 1024
                elif line.startswith("Pss:"):
                    proportional += int(line.split()[1]) * 1024
        return resident, proportional

    def wait_ready(self, on_answer=None):
        """Seconds until /health is 200; on_answer gets every exchange before that."""
        deadline = self.started + START_S[self.engine]
        while time.monotonic() < deadline:
            if self.child.poll() is not None:
                raise AssertionError(f"{self.engine} ended with {self.child.returncode}:\n{self.output()[-3000:]}")
            try:
                answer = exchange.exchange(self.port, "GET", "/health", timeout_s=10)
            except OSError:
                answer = None
            if answer and answer["status"] == 200:
                return time.monotonic() - self.started
            if answer and on_answer:
                on_answer(answer)
            time.sleep(0.02)
        raise AssertionError(f"{self.engine} not ready:\n{self.output()[-3000:]}")

    def wait_exit(self, seconds):
        return self.child.wait(timeout=seconds)

    def output(self):
        return redact(self.log.read_text("utf-8", "replace"), self.model, self.port)

    def close(self):
        for number, seconds in ((signal.SIGTERM, 20), (signal.SIGKILL, 10)):
            if not self.group():
                break
            try:
                os.killpg(self.child.pid, number)
            except ProcessLookupError:
                break
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                self.child.poll()
                if not self.group():
                    break
                time.sleep(0.05)
        self.child.wait(timeout=10)
        self.log.unlink(missing_ok=True)


def redact(text, model, port):
    """Without what differs from machine to machine."""
    text = text.replace(str(model.parent), "/models").replace(str(pathlib.Path.home()), "~")
    text = re.sub(rf"\b{port}\b", "8000", text)
    return re.sub(r"/tmp/[\w./-]*", "/tmp/x", text)


def redacted(entry, peer):
    """An exchange without paths and ports of the recording machine, in its strings."""
    if isinstance(entry, str):
        return redact(entry, peer.model, peer.port)
    if isinstance(entry, list):
        return [redacted(part, peer) for part in entry]
    if isinstance(entry, dict):
        return {key: redacted(value, peer) for key, value in entry.items()}
    return entry
