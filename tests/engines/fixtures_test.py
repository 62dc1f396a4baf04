#!/usr/bin/env python3
"""The recorded exchanges are whole and say what the relay is built on; the engine that replays them replays them, faults
included. Needs no engine of others."""
import contextlib
import http.client
import json
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

import exchange
import peer_process
import questions

HERE = pathlib.Path(__file__).resolve().parent
BYTES_MAX = 280_000
LLAMA = exchange.load(exchange.FIXTURES / "llama-server")
VLLM = exchange.load(exchange.FIXTURES / "vllm")


@contextlib.contextmanager
def fake(engine, fault=None, extra=()):
    """The port of a started fake engine, and its process."""
    port = peer_process.free_port()
    words = ["--model", "x.gguf"] if engine == "llama-server" else ["serve", "folder"]
    child = subprocess.Popen([sys.executable, str(HERE / "fake_engine.py"), engine, *words, "--host", "127.0.0.1", "--port", str(port),
                              "--fault", json.dumps(fault or {}), "--ctx-size", "4096", *extra],
                             stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        yield port, child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
        child.communicate(timeout=10)


def listening(child):
    return "listens" in child.stderr.readline()


def answer_of(port, entry, timeout_s=20):
    request = entry["request"]
    return exchange.exchange(port, request["method"], request["path"], request["body"], timeout_s=timeout_s)


def control(port, fault):
    return exchange.json_of(exchange.exchange(port, "POST", "/fake/fault", fault))


class Fixtures(unittest.TestCase):
    def test_are_small_and_without_traces_of_the_machine(self):
        files = list(exchange.FIXTURES.glob("*/*.jsonl"))
        self.assertLess(sum(file.stat().st_size for file in files), BYTES_MAX)
        for file in files:
            found = re.findall(r"/(?:root|work|tmp)/[\w/.-]+", file.read_text("ascii"))
            self.assertEqual(set(), {path for path in found if path != "/tmp/x"}, file)

    def test_streams_are_whole(self):
        for entry in [*LLAMA.values(), *VLLM.values()]:
            if entry.get("status") == 200 and entry["ended"] == "complete" and entry["headers"].get("content-type", "").startswith("text/event-stream"):
                events = exchange.events_of(entry)
                self.assertGreater(len(events), 0, entry["name"])
                last = events[-1]
                self.assertTrue(last == "[DONE]" or last.get("stop") is True, (entry["name"], last))

    def test_llama_server_gives_the_ids_of_its_tokens(self):
        events = exchange.events_of(LLAMA["completion_stream"])
        self.assertEqual("The capital of Norway is Oslo.", "".join(event["content"] for event in events))
        self.assertGreater(sum(len(event["tokens"]) for event in events), 5)
        self.assertEqual("eos", events[-1]["stop_type"])

    def test_vllm_gives_the_ids_of_its_tokens(self):
        events = exchange.events_of(VLLM["completion_stream"])[:-1]
        choices = [choice for event in events for choice in event["choices"]]
        self.assertTrue("".join(choice["text"] for choice in choices).startswith("The capital of Norway is Oslo."))
        self.assertGreater(sum(len(choice["token_ids"] or []) for choice in choices), 5)

    def test_the_table_of_failures(self):
        """What the sanitizer and the relay repair really happens there."""
        def message(name):
            return exchange.json_of(VLLM[name])["choices"][0]["message"]
        self.assertIn("short title", message("plain_chat_title")["content"])
        self.assertIsNone(message("parsers_chat_title")["content"])
        for prefix in ("plain", "parsers"):
            self.assertIn("Wednesday", message(f"{prefix}_chat_title_no_thinking")["content"])
            self.assertEqual("length", exchange.json_of(VLLM[f"{prefix}_chat_title_effort_low"])["choices"][0]["finish_reason"])
            late = VLLM[f"{prefix}_chat_late_system"]
            self.assertEqual(400, late["status"])
            self.assertIn("System message must be at the beginning", exchange.body_of(late))
        self.assertEqual(400, VLLM["plain_chat_tools_auto"]["status"])
        self.assertEqual("get_weather", message("parsers_chat_tools_auto")["tool_calls"][0]["function"]["name"])
        self.assertEqual("", message("parsers_chat_tools_none")["content"].strip())
        self.assertEqual({"dead_second": 500, "dead_third": 500}, {name: VLLM[name]["status"] for name in ("dead_second", "dead_third")})


class Replay(unittest.TestCase):
    def test_every_exchange_comes_back_as_it_was(self):
        for engine, entries in (("llama-server", LLAMA), ("vllm", VLLM)):
            with fake(engine) as (port, child):
                self.assertTrue(listening(child))
                done = set()
                for entry in entries.values():
                    if entry.get("status", 0) == 0 or entry["name"].startswith(("loading_", "dead_", "killed_", "noformat_", "nojinja_", "budget0_",
                                                                                "metrics_after_", "parsers_", "prefix_", "chat_prefix_", "error_too_long")):
                        continue
                    key = json.dumps(entry["request"], sort_keys=True)
                    if entry["ended"] != "complete" or key in done:
                        continue
                    done.add(key)
                    answer = answer_of(port, entry)
                    self.assertEqual((entry["status"], entry["chunks"], entry["framing"]),
                                     (answer["status"], answer["chunks"], answer["framing"]), entry["name"])
                self.assertGreater(len(done), 30)
                self.assertEqual(0, control(port, {})["counts"]["nearest"])

    def test_flags_choose_what_is_played(self):
        with fake("vllm", extra=("--tool-call-parser", "qwen3_coder")) as (port, child):
            listening(child)
            entry = VLLM["parsers_chat_tools_auto"]
            self.assertEqual(entry["chunks"], answer_of(port, entry)["chunks"])

    def test_an_unknown_question_gets_the_nearest_answer(self):
        with fake("llama-server") as (port, child):
            listening(child)
            answer = exchange.exchange(port, "POST", "/completion", {"prompt": [1, 2], "stream": True, "top_k": 1})
            self.assertEqual((200, "chunked"), (answer["status"], answer["framing"]))
            self.assertEqual(501, exchange.exchange(port, "POST", "/no/such/path", {})["status"])
            counts = control(port, {})["counts"]
            self.assertEqual((1, 1), (counts["nearest"], counts["unknown"]))

    def test_loading(self):
        with fake("llama-server", {"start_s": 0.5}) as (port, child):
            listening(child)
            answer = exchange.exchange(port, "GET", "/health")
            self.assertEqual((LLAMA["loading_health"]["status"], LLAMA["loading_health"]["chunks"]), (answer["status"], answer["chunks"]))
            deadline = time.monotonic() + 10
            while exchange.exchange(port, "GET", "/health")["status"] != 200:
                self.assertLess(time.monotonic(), deadline)

    def test_faults_in_the_middle(self):
        entry = LLAMA["completion_stream"]
        with fake("llama-server") as (port, child):
            listening(child)
            control(port, {"break_after": 2})
            answer = answer_of(port, entry)
            self.assertEqual((entry["chunks"][:2], "server"), (answer["chunks"], answer["ended"]))
            control(port, {"hang_after": 2})
            with self.assertRaises(TimeoutError):
                answer_of(port, entry, timeout_s=0.5)
            control(port, {"status": 500, "after": 3})
            self.assertEqual([200, 500], [answer_of(port, entry)["status"] for _ in range(2)])
            control(port, {"die_after": 1})
            self.assertEqual("server", answer_of(port, entry)["ended"])
            self.assertEqual(-signal.SIGKILL, child.wait(timeout=10))

    def test_nothing_is_answered(self):
        with fake("vllm", {"accept": False}) as (port, child):
            listening(child)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=0.3)
            connection.request("GET", "/health")
            with self.assertRaises(TimeoutError):
                connection.getresponse()
            connection.close()

    def test_ends(self):
        for engine, entries in (("llama-server", LLAMA), ("vllm", VLLM)):
            for name in ("exit_wrong_flag", "exit_port_taken", "exit_no_model", "exit_out_of_memory"):
                end = entries[name]["process"]
                with fake(engine, {"exit": name}) as (_, child):
                    output = child.communicate(timeout=10)[1]
                    self.assertEqual((end["exit"], end["output"]), (child.returncode, output.splitlines()), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
