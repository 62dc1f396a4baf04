"""Clients and instruments of tests/bench/cotenancy: streams with the time of every token, stolen time, percentiles.

All times are time.monotonic(), which every process of this machine shares. A "flow" is what one client does again
and again until it is stopped; it yields marks, one per request: when it was sent, when each token came.
"""
import contextlib
import dataclasses
import json
import pathlib
import random
import socket
import subprocess
import threading
import time


@dataclasses.dataclass
class Mark:
    """One request: sent, the arrival of each token, and how it ended ("" while it runs)."""
    sent: float
    prompt_tokens: int
    tokens: list = dataclasses.field(default_factory=list)
    end: str = ""


def percentile(values, share):
    """The value that `share` of them do not exceed; None of an empty list."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def learn_vocabulary(service):
    """Ids below service.vocabulary are text in all models: the special tokens come last."""
    sizes = [json.loads(service.ctl("model", "show", name, "--json"))["facts"]["vocab_size"]
             for name in service.status()]
    service.vocabulary = int(0.9 * min(sizes))


def prompt_ids(service, chance, count):
    """Ids that no other prompt begins with: nothing is reused from a prefix cache."""
    return [chance.randrange(service.vocabulary // 2, service.vocabulary) for _ in range(count)]


class Ticks:
    """Share of the processors' time that the host took away between begin() and end()."""

    def begin(self):
        self.before = self.read()
        return self

    def stolen(self):
        now = self.read()
        total = sum(now) - sum(self.before)
        return (now[7] - self.before[7]) / total if total > 0 else 0.0

    @staticmethod
    def read():
        return [int(field) for field in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]


class Connection:
    """A kept-alive connection that streams completions; cheap, since it runs on the cores that are measured."""

    def __init__(self, service):
        self.socket = socket.create_connection(("127.0.0.1", service.port), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.key = service.key
        self.buffer = b""

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def fill(self):
        block = self.socket.recv(1 << 16)
        if not block:
            raise ConnectionError("the connection was closed inside an answer")
        self.buffer += block

    def complete(self, model, ids, answer_tokens, mark):
        """Streams one answer into the mark. Error: ConnectionError, or RuntimeError with what came instead."""
        body = json.dumps({"model": model, "prompt": ids, "max_tokens": answer_tokens, "temperature": 0,
                           "ignore_eos": True, "stream": True}).encode()
        self.socket.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
                            + self.key.encode() + b"\r\nContent-Type: application/json\r\nContent-Length: "
                            + str(len(body)).encode() + b"\r\n\r\n" + body)
        while b"\r\n\r\n" not in self.buffer:
            self.fill()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise RuntimeError(head.split(b"\r\n", 1)[0].decode() + " " + self.buffer[:300].decode("utf-8", "replace"))
        while True:
            now = time.monotonic()
            # An event ends with an empty line; chunk sizes of the transfer coding stand between events.
            *whole, self.buffer = self.buffer.split(b"\n\n")
            for event in whole:
                if b"data: [DONE]" in event:
                    mark.end = "done"
                elif b'"error"' in event and b'"choices"' not in event:
                    raise RuntimeError(event[-300:].decode("utf-8", "replace"))
                elif b'"finish_reason":null' in event:
                    mark.tokens.append(now)
            if mark.end:
                while b"0\r\n\r\n" not in self.buffer:
                    self.fill()
                self.buffer = self.buffer.split(b"0\r\n\r\n", 1)[1]
                return
            self.fill()


class Flow:
    """Requests of one shape to one model, one after the other, until stop()."""

    def __init__(self, service, model, prompt_tokens, answer_tokens, seed):
        self.marks = []
        self.error = None
        self.stopped = False
        self.chance = random.Random(seed)
        self.service = service
        self.connection = Connection(service)
        self.shape = (model, prompt_tokens, answer_tokens)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        model, prompt_tokens, answer_tokens = self.shape
        while not self.stopped:
            ids = prompt_ids(self.service, self.chance, prompt_tokens)
            mark = Mark(time.monotonic(), prompt_tokens)
            self.marks.append(mark)
            try:
                self.connection.complete(model, ids, answer_tokens, mark)
            except (OSError, RuntimeError) as error:
                if not self.stopped:
                    self.error = f"{model}: {error}"
                return

    def stop(self):
        self.stopped = True
        self.connection.close()  # the answer under way is cancelled
        self.thread.join(timeout=30)
        if self.error:
            raise RuntimeError(self.error)


class Peer:
    """One llama.cpp process (cotenancy_peer.py) with a model loaded; flows are started and stopped by lines."""

    def __init__(self, python, file, threads):
        self.process = subprocess.Popen([python, str(pathlib.Path(__file__).with_name("cotenancy_peer.py")), str(file),
                                         str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if not self.process.stdout.readline():
            raise RuntimeError("llama.cpp could not load the file")

    def start(self, prompt_tokens, answer_tokens):
        self.prompt_tokens = prompt_tokens
        self.process.stdin.write(f"{prompt_tokens} {answer_tokens}\n")
        self.process.stdin.flush()

    def stop(self):
        self.process.stdin.write("stop\n")
        self.process.stdin.flush()
        self.marks = [Mark(sent, self.prompt_tokens, tokens, "done")
                      for sent, tokens in json.loads(self.process.stdout.readline())]

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)


@dataclasses.dataclass
class Seen:
    """What one flow did inside a window."""
    gaps: list            # seconds between tokens of one answer, which ended inside the window
    prompt_tokens: float  # of prompts, each counted where its time lay inside
    seconds: float
    answers: int

    @property
    def rate(self):
        """Tokens per second of decoding: what prompts took is left out."""
        return len(self.gaps) / sum(self.gaps) if self.gaps else 0.0

    @property
    def prompt_rate(self):
        return self.prompt_tokens / self.seconds


def seen(marks, begin, end):
    gaps, prompt_tokens, answers = [], 0.0, 0
    for mark in marks:
        for before, after in zip(mark.tokens, mark.tokens[1:]):
            if begin <= after < end:
                gaps.append(after - before)
        # One that stands still at the end of the window is a gap too: at least so long.
        if mark.tokens and mark.tokens[-1] < end and not mark.end and end - mark.tokens[-1] > 1.0:
            gaps.append(end - mark.tokens[-1])
        first = mark.tokens[0] if mark.tokens else end
        share = (min(first, end) - max(mark.sent, begin)) / max(first - mark.sent, 1e-9)
        prompt_tokens += mark.prompt_tokens * max(0.0, min(share, 1.0)) if mark.tokens else 0.0
        answers += 1 if mark.tokens and begin <= mark.tokens[-1] < end else 0
    return Seen(gaps, prompt_tokens, end - begin, answers)
