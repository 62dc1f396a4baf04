#!/usr/bin/env python3
"""An engine of others, played from recorded exchanges (exchange.py), with faults on demand: for tests where no real one
is installed. It is started as the real one is; arguments that it does not know are ignored, as in

  fake_engine.py llama-server --model FILE --host 127.0.0.1 --port 8000 ...
  fake_engine.py vllm serve FOLDER --host 127.0.0.1 --port 8000 ...

A request gets the recorded answer whose essential fields (what is asked, not how it is sampled) equal its own; if none
does, the nearest of the same method, path and kind of body (stream or whole), which is counted. Nothing recorded for
the path: 501.

Faults: --fault JSON at the start, or POST /fake/fault JSON at any time (keys replace; {} ends all); GET /fake/state counts.
  start_s      seconds of loading: llama-server answers 503, vllm does not listen yet
  exit         name of a recorded end (exits.jsonl): its output on stderr, its exit status, at once
  accept       false: connections are taken, nothing is ever answered (as a stopped process does)
  hang_after   inference answers stop after that many chunks and stay open
  break_after  the connection is closed after that many chunks
  die_after    the process ends by SIGKILL after that many chunks
  status       inference answers are this status with a body of the engine's own form (a dead engine process: 500)
  chunk_s      seconds between chunks
Counts: inference requests may be left alone first: "after": N.
"""
import argparse
import http.server
import json
import os
import signal
import socketserver
import sys
import threading
import time

import exchange

INFERENCE = ("/completion", "/completions", "/v1/completions", "/v1/chat/completions", "/chat/completions")
# What is asked. Everything else in a body is sampling, limits and reporting.
ESSENTIAL = ("prompt", "messages", "tools", "tool_choice", "chat_template_kwargs", "content", "tokens", "json_schema", "grammar",
             "structured_outputs", "response_format", "add_special", "parse_special", "with_pieces", "add_generation_prompt",
             "add_special_tokens", "n", "n_cmpl", "reasoning_effort")
# Recorded with these flags, so played with these: prefix of the exchanges' names, the flag.
WAYS = {"parsers_": "--tool-call-parser", "nojinja_": "--no-jinja", "noformat_": "--reasoning-format", "budget0_": "--reasoning-budget"}
# Not what an engine that works answers at any time.
ASIDE = ("loading_", "dead_", "killed_", "metrics_after_")


def essence(body):
    if not isinstance(body, dict):
        return {"raw": body}
    return {key: body[key] for key in ESSENTIAL if body.get(key) is not None}


def streams(body):
    return bool(isinstance(body, dict) and body.get("stream"))


class Recorded:
    """The exchanges of one engine, to choose from."""

    def __init__(self, entries, arguments):
        ways = [way for way, flag in WAYS.items() if flag in arguments]
        absent = tuple(way for way in WAYS if way not in ways)
        self.ends = {name: entry["process"] for name, entry in entries.items() if "process" in entry}
        self.loading = entries.get("loading_health")
        self.dead = entries.get("dead_second")
        self.by_path = {}
        for entry in sorted(entries.values(), key=lambda entry: not entry["name"].startswith(tuple(ways))):
            if "request" in entry and entry["status"] != 0 and not entry["name"].startswith((*absent, *ASIDE)):
                request = entry["request"]
                self.by_path.setdefault((request["method"], request["path"]), []).append(entry)

    def choose(self, method, path, body):
        """(exchange or None, whether it is the very one)."""
        same = [entry for entry in self.by_path.get((method, path), [])
                if streams(entry["request"]["body"]) == streams(body)]
        wanted = essence(body)
        for view, asked in ((lambda recorded: recorded, body), (essence, wanted)):
            for entry in same:
                if view(entry["request"]["body"]) == asked:
                    return entry, True
        whole = [entry for entry in same if entry["status"] == 200 and entry["ended"] == "complete"]

        def likeness(entry):
            have = essence(entry["request"]["body"])
            return (len(have.keys() & wanted.keys()) - len(have.keys() ^ wanted.keys()),
                    sum(have.get(key) == value for key, value in wanted.items()))
        return max(whole, key=likeness, default=None), False


class State:
    """Faults and counts, shared by the connections' threads."""

    def __init__(self, engine, recorded, fault):
        self.engine = engine
        self.recorded = recorded
        self.lock = threading.Lock()
        self.fault = fault
        self.counts = {"inference": 0, "exact": 0, "nearest": 0, "unknown": 0, "broken": 0}
        self.ready_at = time.monotonic() + fault.get("start_s", 0)
        self.requests = []

    def count(self, name):
        with self.lock:
            self.counts[name] += 1
            return self.counts[name]

    def seen(self, method, path, body):
        with self.lock:
            self.requests = [*self.requests[-49:], {"method": method, "path": path, "body": body}]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.handle_one()

    def do_POST(self):
        self.handle_one()

    def handle_one(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = raw.decode("latin-1")
        if self.path.startswith("/fake/"):
            self.control(body)
            return
        state = self.state
        state.seen(self.command, self.path, body)
        if not state.fault.get("accept", True):
            threading.Event().wait()
        if time.monotonic() < state.ready_at:
            self.play(state.recorded.loading, {})
            return
        fault = {}
        if self.path in INFERENCE and state.count("inference") > state.fault.get("after", 0):
            fault = state.fault
        if "status" in fault:
            self.whole(fault["status"], self.error_text(fault["status"]))
            return
        entry, exact = state.recorded.choose(self.command, self.path, body)
        if entry is None:
            state.count("unknown")
            self.whole(501, json.dumps({"error": {"message": f"no exchange recorded for {self.command} {self.path}"}}))
            return
        state.count("exact" if exact else "nearest")
        self.play(entry, fault)

    def error_text(self, status):
        if self.state.recorded.dead and status == 500:
            return exchange.body_of(self.state.recorded.dead)
        return json.dumps({"error": {"code": status, "message": "Compute error.", "type": "server_error"}})

    def control(self, body):
        state = self.state
        if self.command == "POST" and self.path == "/fake/fault":
            state.fault = body or {}
            state.ready_at = time.monotonic() + state.fault.get("start_s", 0)
        with state.lock:
            self.whole(200, json.dumps({"fault": state.fault, "counts": state.counts, "requests": state.requests}))

    def whole(self, status, text):
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def play(self, entry, fault):
        """Sends the recorded answer chunk by chunk; a fault ends it early."""
        self.send_response_only(entry["status"])
        for name, value in entry["headers"].items():
            if name not in ("connection", "keep-alive"):
                self.send_header(name, value)
        chunks = [chunk.encode() for chunk in entry["chunks"]]
        chunked = entry["framing"] == "chunked"
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(sum(map(len, chunks))))
        self.end_headers()
        try:
            for index, chunk in enumerate(chunks):
                self.break_off(index, fault)
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk) if chunked else chunk)
                self.wfile.flush()
                if fault.get("chunk_s"):
                    time.sleep(fault["chunk_s"])
            self.break_off(len(chunks), fault)
            if chunked and entry["ended"] == "complete":
                self.wfile.write(b"0\r\n\r\n")
            elif entry["ended"] != "complete":
                self.close_connection = True
        except OSError:
            self.state.count("broken")
            self.close_connection = True

    def break_off(self, sent, fault):
        if sent == fault.get("die_after"):
            os.kill(os.getpid(), signal.SIGKILL)
        if sent == fault.get("hang_after"):
            threading.Event().wait()
        if sent == fault.get("break_after"):
            raise BrokenPipeError


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        pass  # a client that goes away is a matter of course


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=("llama-server", "vllm"))
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--fault", type=json.loads, default={})
    parser.add_argument("--fixtures", default=None)
    options, others = parser.parse_known_args()
    recorded = Recorded(exchange.load(options.fixtures or exchange.FIXTURES / options.engine), others)
    if "exit" in options.fault:
        end = recorded.ends[options.fault["exit"]]
        print(*end["output"], sep="\n", file=sys.stderr, flush=True)
        if end["exit"] < 0:
            os.kill(os.getpid(), -end["exit"])
        sys.exit(end["exit"])
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if options.engine == "vllm":
        time.sleep(options.fault.get("start_s", 0))
        options.fault.pop("start_s", None)
    Handler.state = State(options.engine, recorded, options.fault)
    try:
        server = Server((options.host, options.port), Handler)
    except OSError:
        taken = recorded.ends.get("exit_port_taken", {"output": ["port taken"], "exit": 1})
        print(*taken["output"], sep="\n", file=sys.stderr, flush=True)
        sys.exit(taken["exit"])
    print(f"fake {options.engine} listens on {options.host}:{options.port}", file=sys.stderr, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
