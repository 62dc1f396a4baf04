#!/usr/bin/env python3
"""Malformed requests: each gets the right 4xx with the path of its field, none a 5xx, and memory stays.

  bad_input_test.py            the list, and memory between the 4,000th and the 12,000th
  bad_input_test.py --long     memory between the 10,000th and the 100,000th
"""
import http.client
import json
import sys
import unittest

import support

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HI = [{"role": "user", "content": "hi"}]


def chat(**fields):
    return json.dumps({"model": "tiny", "messages": HI, "max_tokens": 1, **fields})


def text(**fields):
    return json.dumps({"model": "tiny", "prompt": "hi", "max_tokens": 1, **fields})


def without(body, field):
    value = json.loads(body)
    del value[field]
    return json.dumps(value)


def nested(depth):
    return '{"model":"tiny","messages":' + "[" * depth + "]" * depth + "}"


def cases():
    """(name, path, body, status, start of the field's path or None)"""
    wrong = {"string": "x", "list": [1], "object": {"a": 1}, "true": True, "float": 1.5}
    listed = []

    def add(name, path, body, status, field=None):
        listed.append((name, path, body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass"), status,
                       field))

    # Not JSON at all.
    for name, body in [("empty", b""), ("spaces", b"   "), ("text", b"hello"), ("cut", b'{"model":"tiny"'), ("nul", b"\0"),
                       ("trailing", chat().encode() + b"x"), ("two values", chat().encode() * 2),
                       ("single quotes", b"{'model':'tiny'}"), ("comment", b'{"model":"tiny",/*x*/"messages":[]}'),
                       ("nan", b'{"model":"tiny","temperature":NaN}'), ("control", b'{"model":"ti\x01ny"}'),
                       ("bad utf-8", b'{"model":"tiny","messages":[{"role":"user","content":"\xff\xfe"}]}'),
                       ("overlong utf-8", b'{"model":"tiny","messages":[{"role":"user","content":"\xc0\xaf"}]}'),
                       ("surrogate", b'{"model":"tiny","messages":[{"role":"user","content":"\\ud800"}]}'),
                       ("bare array", b"[]"), ("bare string", b'"x"'), ("bare null", b"null"), ("bare number", b"1")]:
        add(f"json {name}", CHAT, body, 400)
    # Shape.
    add("deep 65", CHAT, nested(65), 400)
    add("deep 100000", CHAT, nested(100000), 400)
    add("duplicate key", CHAT, b'{"model":"tiny","model":"tiny2","messages":[]}', 400, "model")
    add("duplicate key deep", CHAT, b'{"model":"tiny","messages":[{"role":"user","role":"system","content":"x"}]}', 400,
        "messages[0].role")
    add("many values", CHAT, '{"model":"tiny","messages":[' + "0," * 1_100_000 + "0]}", 400)
    for name, number in [("1e999", "1e999"), ("-1e999", "-1e999"), ("20 digits", "9" * 20), ("400 digits", "9" * 400)]:
        add(f"max_tokens {name}", CHAT, '{"model":"tiny","messages":[{"role":"user","content":"x"}],"max_tokens":' + number + "}",
            400, None if "e999" in name or name == "400 digits" else "max_tokens")
    # Required fields.
    add("no messages", CHAT, without(chat(), "messages"), 400, "messages")
    add("no prompt", TEXT, without(text(), "prompt"), 400, "prompt")
    add("messages empty", CHAT, chat(messages=[]), 400, "messages")
    add("messages null", CHAT, chat(messages=None), 400, "messages")
    for kind, value in wrong.items():
        if kind != "list":
            add(f"messages {kind}", CHAT, chat(messages=value), 400, "messages")
        add(f"message {kind}", CHAT, chat(messages=[*HI, value if kind != "object" else []]), 400, "messages[1]")
    add("no role", CHAT, chat(messages=[{"content": "x"}]), 400, "messages[0].role")
    add("role number", CHAT, chat(messages=[{"role": 1, "content": "x"}]), 400, "messages[0].role")
    add("role unknown", CHAT, chat(messages=[{"role": "wizard", "content": "x"}]), 400, "messages[0].role")
    add("no content", CHAT, chat(messages=[{"role": "user"}]), 400, "messages[0].content")
    for kind, value in (("number", 1), ("object", {"a": 1}), ("true", True)):
        add(f"content {kind}", CHAT, chat(messages=[{"role": "user", "content": value}]), 400, "messages[0].content")
    add("part string", CHAT, chat(messages=[{"role": "user", "content": ["x"]}]), 400, "messages[0].content[0]")
    add("part no type", CHAT, chat(messages=[{"role": "user", "content": [{"text": "x"}]}]), 400, "messages[0].content[0]")
    add("part image", CHAT, chat(messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}]), 400, "messages[0].content[0]")
    add("part text number", CHAT, chat(messages=[{"role": "user", "content": [{"type": "text", "text": 1}]}]), 400,
        "messages[0].content[0]")
    # Model.
    add("model unknown", CHAT, chat(model="no-such-model"), 404, "model")
    add("model path", CHAT, chat(model="../../etc/passwd"), 404, "model")
    add("model number", CHAT, chat(model=1), 400, "model")
    add("model list", TEXT, text(model=["tiny"]), 400, "model")
    # Numbers: types and ranges.
    for field, low, high in [("temperature", -0.1, 2000), ("top_p", -0.1, 1.1), ("min_p", -0.1, 1.1),
                             ("presence_penalty", -100, 100), ("frequency_penalty", -100, 100), ("n", 0, 100000)]:
        add(f"{field} low", CHAT, chat(**{field: low}), 400, field)
        add(f"{field} high", CHAT, chat(**{field: high}), 400, field)
        add(f"{field} string", CHAT, chat(**{field: "x"}), 400, field)
        add(f"{field} list", CHAT, chat(**{field: [1]}), 400, field)
    for field in ("max_tokens", "max_completion_tokens", "top_k", "seed"):
        add(f"{field} string", CHAT, chat(**{field: "5"}), 400, field)
        add(f"{field} float", CHAT, chat(**{field: 1.5}), 400, field)
    for field in ("max_tokens", "max_completion_tokens"):
        add(f"{field} negative", CHAT, without(chat(**{field: -5}), "max_tokens") if field != "max_tokens"
            else chat(max_tokens=-5), 400, field)
    add("repetition_penalty zero", CHAT, chat(repetition_penalty=0), 400, "repetition_penalty")
    # Booleans and objects.
    for field in ("stream", "logprobs", "ignore_eos"):
        add(f"{field} string", CHAT, chat(**{field: "true"}), 400, field)
    add("stream_options string", CHAT, chat(stream=True, stream_options="x"), 400, "stream_options")
    add("include_usage number", CHAT, chat(stream=True, stream_options={"include_usage": 3}), 400,
        "stream_options.include_usage")
    add("top_logprobs high", CHAT, chat(logprobs=True, top_logprobs=99), 400, "top_logprobs")
    add("top_logprobs alone", CHAT, chat(top_logprobs=3), 400, "top_logprobs")
    add("stop number", CHAT, chat(stop=1), 400, "stop")
    add("stop list of numbers", CHAT, chat(stop=["a", 1]), 400, "stop[1]")
    add("stop too many", CHAT, chat(stop=["a"] * 1000), 400, "stop")
    add("stop object", CHAT, chat(stop={"a": 1}), 400, "stop")  # an empty string means nothing (R25)
    add("logit_bias list", CHAT, chat(logit_bias=[1]), 400, "logit_bias")
    add("logit_bias key", CHAT, chat(logit_bias={"x": 1}), 400, "logit_bias")
    add("logit_bias value", CHAT, chat(logit_bias={"1": "x"}), 400, "logit_bias")
    add("logit_bias token", CHAT, chat(logit_bias={"99999999": 1}), 400, "logit_bias")
    add("tools string", CHAT, chat(tools="x"), 400, "tools")
    # Completions.
    for kind, value in (("number", 1), ("object", {"a": 1}), ("true", True), ("mixed", ["a", 1]), ("nested", [["a"]])):
        add(f"prompt {kind}", TEXT, text(prompt=value), 400, "prompt")
    add("prompt id high", TEXT, text(prompt=[1, 99999999]), 400, "prompt[1]")
    add("prompt id negative", TEXT, text(prompt=[1, -1]), 400, "prompt[1]")
    add("prompt empty list", TEXT, text(prompt=[]), 400, "prompt")
    add("completion logprobs high", TEXT, text(logprobs=99), 400, "logprobs")
    add("echo string", TEXT, text(echo="x"), 400, "echo")
    add("too long", TEXT, text(prompt="word " * 30000), 400, "prompt")
    add("too long chat", CHAT, chat(messages=[{"role": "user", "content": "word " * 30000}]), 400, "messages")
    add("never fits", TEXT, text(prompt=list(range(100, 200)) * 41), 400, "prompt")
    # Tokenize.
    add("tokenize no content", "/tokenize", json.dumps({"model": "tiny"}), 400, "content")
    add("tokenize number", "/tokenize", json.dumps({"content": 5}), 400, "content")
    add("tokenize flag", "/tokenize", json.dumps({"content": "a", "add_special": "x"}), 400, "add_special")
    add("detokenize string", "/detokenize", json.dumps({"tokens": "x"}), 400, "tokens")
    add("detokenize id", "/detokenize", json.dumps({"tokens": [1, 99999999]}), 400, "tokens[1]")
    add("detokenize float", "/detokenize", json.dumps({"tokens": [1.5]}), 400, "tokens[0]")
    add("tokenize model", "/tokenize", json.dumps({"model": "none", "content": "a"}), 404, "model")
    return listed


class BadInputTest(unittest.TestCase):
    counts = (4000, 12000)

    @classmethod
    def setUpClass(cls):
        cls.service = support.Service()
        cls.addClassCleanup(cls.service.close)
        cls.service.start()

    def test_each_gets_the_right_4xx(self):
        listed = cases()
        self.assertGreaterEqual(len(listed), 100)
        for name, path, body, status, field in listed:
            with self.subTest(name=name):
                answer = self.service.request("POST", path, body)
                self.assertEqual(status, answer.status, answer)
                error = support.error_of(answer)
                if field is not None:
                    self.assertTrue((error["param"] or "").startswith(field), (field, error))
                self.assertTrue(error["code"], "a stable code")
                self.assertEqual("application/json", answer.headers["content-type"].split(";")[0])
                self.assertTrue(answer.headers["x-request-id"])
        self.assertEqual(200, self.service.request("POST", CHAT, chat()).status)

    def test_wrong_content_type(self):
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml"):
            answer = self.service.request("POST", CHAT, chat(), {"Content-Type": kind})
            self.assertIn(answer.status, (400, 415), (kind, answer))
            support.error_of(answer)
        self.assertEqual(200, self.service.request("POST", CHAT, chat(), {
            "Content-Type": "application/json; charset=utf-8"}).status)

    def test_unknown_fields_are_ignored(self):
        self.assertEqual(200, self.service.request("POST", CHAT, chat(
            user="me", store=True, metadata={"a": 1}, stream_options=None, service_tier="auto", x_unknown=[1])).status)

    def test_memory_stays(self):
        listed = [case for case in cases() if len(case[2]) < 4096]
        first, last = self.counts
        headers = {"Authorization": f"Bearer {self.service.key}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=60)
        at_first = 0
        for count in range(1, last + 1):
            _, path, body, status, _ = listed[count % len(listed)]
            for attempt in range(2):  # a kept-alive connection may be closed after a refusal
                try:
                    connection.request("POST", path, body, headers)
                    answer = connection.getresponse()
                    answer.read()
                    break
                except (ConnectionError, http.client.HTTPException):
                    self.assertEqual(0, attempt)
                    connection.close()
            self.assertEqual(status, answer.status)
            if count == first:
                at_first = support.resident_bytes(self.service.daemon.pid)
        growth = support.resident_bytes(self.service.daemon.pid) - at_first
        print(f"resident memory of tandemd: {at_first >> 10} KiB at {first}, {growth >> 10} KiB more at {last}")
        self.assertLessEqual(growth, 2 << 20)


if __name__ == "__main__":
    if "--long" in sys.argv:
        sys.argv.remove("--long")
        BadInputTest.counts = (10000, 100000)
        sys.argv.append("BadInputTest.test_memory_stays")
    support.main()
