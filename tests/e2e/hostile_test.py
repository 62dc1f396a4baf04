#!/usr/bin/env python3
"""Slow and hostile clients: they cost a socket, never a neighbour's answer; no byte becomes another request."""
import contextlib
import gzip
import resource
import select
import socket
import threading
import time
import unittest

import support

CROWD = 2000
BODY_MAX = 1 << 20
SMUGGLED = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"


def statuses(data):
    """Status codes of all answers in a byte stream."""
    return [int(part[1:4]) for part in data.split(b"HTTP/1.1")[1:]]


class HostileTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
        cls.service = support.Service(limits=f'body_bytes = "1MiB"\nheader_deadline = "20s"\nbody_deadline = "20s"')
        cls.addClassCleanup(cls.service.close)
        cls.service.start()

    def head(self, method="POST", path="/v1/chat/completions", key=True, extra=b""):
        lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: 127.0.0.1"]
        if key:
            lines.append(b"Authorization: Bearer " + self.service.key.encode())
        return b"\r\n".join(lines) + b"\r\n" + extra + b"\r\n"

    def tearDown(self):
        """Whatever was done, the service is well."""
        self.assertIsNone(self.service.daemon.poll())
        self.assertEqual(200, self.service.request("GET", "/health", key=False).status)

    # --- The crowd ---

    def measured(self):
        """Slowest of a few health, admin and chat calls, in seconds."""
        slowest = {"health": 0.0, "admin": 0.0, "chat": 0.0}
        for _ in range(5):
            for name, call in (("health", lambda: self.service.request("GET", "/health", key=False)),
                               ("admin", self.service.status),
                               ("chat", lambda: self.service.chat("18 + 73 = ?", max_tokens=8))):
                began = time.monotonic()
                answer = call()
                slowest[name] = max(slowest[name], time.monotonic() - began)
                if name != "admin":
                    self.assertEqual(200, answer.status, answer)
        return slowest

    def test_2000_slow_connections_delay_nobody(self):
        alone = self.measured()
        crowd = []
        stop = threading.Event()
        body = self.head(extra=b"Content-Type: application/json\r\nContent-Length: 1000\r\n")
        head = self.head()
        try:
            for index in range(CROWD):
                connection = self.service.raw()
                crowd.append(connection)
                if index % 4 == 1:
                    connection.sendall(head[:10])          # half a request line, then silence
                elif index % 4 == 2:
                    connection.sendall(body + b'{"model"')  # a body that does not come
            drip = crowd[3::4]

            def one_byte_a_second():
                position = 0
                while not stop.wait(1.0):
                    for connection in drip:
                        with contextlib.suppress(OSError):
                            connection.send(head[position:position + 1])
                    position = min(position + 1, len(head) - 3)

            threading.Thread(target=one_byte_a_second, daemon=True).start()
            time.sleep(1.5)
            beside = self.measured()
            self.assertLess(resident := support.resident_bytes(self.service.daemon.pid), 300 << 20, resident)
        finally:
            stop.set()
            for connection in crowd:
                connection.close()
        for name, seconds in beside.items():
            self.assertLess(seconds, 2 * alone[name] + 0.25, f"{name}: alone {alone}, beside the crowd {beside}")
        threads = len(list(support.pathlib.Path(f"/proc/{self.service.daemon.pid}/task").iterdir()))
        self.assertLess(threads, 400, "a slow connection costs no thread")

    def test_half_open_is_closed_at_the_deadline(self):
        service = support.Service(limits='header_deadline = "500ms"\nbody_deadline = "500ms"\nidle_deadline = "700ms"')
        self.addCleanup(service.close)
        service.start()
        for sent in (b"", b"GET /hea", self.head(extra=b"Content-Length: 10\r\n") + b"{"):
            with self.subTest(sent=sent), service.raw(timeout=10) as connection:
                connection.sendall(sent)
                began = time.monotonic()
                received = b""
                with contextlib.suppress(ConnectionError):
                    while block := connection.recv(4096):
                        received += block
                self.assertLess(time.monotonic() - began, 5)
                self.assertIn(statuses(received), ([], [408], [401]))

    def test_a_client_that_does_not_read(self):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", self.service.port))
        body = support.json.dumps({"model": "tiny", "prompt": "Nora", "max_tokens": 3900, "ignore_eos": True,
                                   "stream": True, "logprobs": 5}).encode()
        connection.sendall(self.head(path="/v1/completions", extra=b"Content-Type: application/json\r\nContent-Length: "
                                     + str(len(body)).encode() + b"\r\n") + body)
        self.addCleanup(connection.close)
        time.sleep(1)
        self.assertEqual(200, self.service.chat("18 + 73 = ?", "tiny").status)
        support.wait_until(lambda: self.service.slots_busy("tiny") == 0, 60, "its slot is taken back", every=0.2)

    # --- Unread bodies and framing ---

    def test_an_unread_body_is_no_request(self):
        length = b"Content-Length: " + str(len(SMUGGLED)).encode() + b"\r\n"
        wrong_key = b"Authorization: Bearer sk-wrong\r\n"
        for name, data in [
            ("refused by key", self.head(key=False, extra=wrong_key + length) + SMUGGLED),
            ("no key", self.head(key=False, extra=length) + SMUGGLED),
            ("unknown path", self.head(path="/nowhere", extra=length) + SMUGGLED),
            ("wrong method", self.head("DELETE", "/v1/models", extra=length) + SMUGGLED),
            ("GET with a body", self.head("GET", "/health", extra=length) + SMUGGLED),
            ("compressed", self.head(extra=b"Content-Encoding: gzip\r\n" + length) + SMUGGLED),
            ("too large", self.head(extra=b"Content-Length: 99999999\r\n") + SMUGGLED),
            ("wrong content type", self.head(extra=b"Content-Type: text/plain\r\n" + length) + SMUGGLED),
        ]:
            for pieces in (1, 2):
                with self.subTest(name=name, pieces=pieces), self.service.raw(timeout=5) as connection:
                    split = len(data) - len(SMUGGLED) if pieces == 2 else len(data)
                    connection.sendall(data[:split])
                    if split < len(data):
                        time.sleep(0.2)  # the body comes after the refusal
                        with contextlib.suppress(ConnectionError):
                            connection.sendall(data[split:])
                    connection.settimeout(1.5)
                    received = b""
                    with contextlib.suppress(ConnectionError, socket.timeout):
                        while block := connection.recv(65536):
                            received += block
                    self.assertEqual(1, len(statuses(received)), received)

    def test_bad_framing_is_refused(self):
        good = b'{"model":"tiny","messages":[{"role":"user","content":"hi"}],"max_tokens":1}'
        size = str(len(good)).encode()
        typed = b"Content-Type: application/json\r\n"
        for name, extra, body in [
            ("two lengths", b"Content-Length: " + size + b"\r\nContent-Length: 1\r\n", good),
            ("length and chunked", b"Content-Length: " + size + b"\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
            ("negative length", b"Content-Length: -1\r\n", good),
            ("huge length", b"Content-Length: 99999999999999999999\r\n", good),
            ("hex length", b"Content-Length: 0x10\r\n", good),
            ("unknown coding", b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"),
            ("coding twice", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
            ("bad chunk size", b"Transfer-Encoding: chunked\r\n", b"zz\r\n" + good + b"\r\n0\r\n\r\n"),
            ("huge chunk size", b"Transfer-Encoding: chunked\r\n", b"ffffffffffffffff\r\n" + good),
            ("space before colon", b"Content-Length : " + size + b"\r\n", good),
            ("folded header", b"X-A: b\r\n c: d\r\nContent-Length: " + size + b"\r\n", good),
            ("nul in header", b"X-A: b\0c\r\nContent-Length: " + size + b"\r\n", good),
        ]:
            with self.subTest(name=name):
                received = self.service.raw_exchange(self.head(extra=typed + extra) + body, timeout=25)
                self.assertEqual(1, len(statuses(received)), received)
                self.assertTrue(400 <= statuses(received)[0] < 500, received[:200])
                self.assertNotIn(b"EXCEPTION", received)

    def test_limits_on_heads(self):
        for name, data in [
            ("long request line", b"GET /" + b"a" * (2 << 20) + b" HTTP/1.1\r\nHost: a\r\n\r\n"),
            ("many headers", self.head(extra=b"X-A: b\r\n" * 200000)),
            ("long header", self.head(extra=b"X-A: " + b"b" * (2 << 20) + b"\r\n")),
        ]:
            with self.subTest(name=name):
                received = self.service.raw_exchange(data)
                self.assertTrue(set(statuses(received)) <= {400, 413, 414, 431}, received[:200])

    def test_rebinding_host_is_refused(self):
        received = self.service.raw_exchange(
            b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\nAuthorization: Bearer "
            + self.service.key.encode() + b"\r\n\r\n")
        self.assertTrue(statuses(received)[0] in (400, 403, 421), received)

    # --- Bodies ---

    def test_compressed_body(self):
        body = b'{"model":"tiny","messages":[{"role":"user","content":"hi"}]}'
        for encoding in ("gzip", "deflate", "br", "zstd"):
            answer = self.service.request("POST", "/v1/chat/completions", gzip.compress(body),
                                          {"Content-Encoding": encoding})
            self.assertEqual(415, answer.status, answer)
            support.error_of(answer)
        bomb = gzip.compress(b"0" * (100 << 20))
        before = support.resident_bytes(self.service.daemon.pid)
        self.assertEqual(415, self.service.request("POST", "/v1/chat/completions", bomb,
                                                   {"Content-Encoding": "gzip"}).status)
        self.assertLess(support.resident_bytes(self.service.daemon.pid) - before, 32 << 20)

    def chunked(self, pieces):
        return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"

    def test_chunked_bodies_work_and_stay_under_the_cap(self):
        body = b'{"model":"tiny","messages":[{"role":"user","content":"18 + 73 = ?"}],"max_tokens":4}'
        extra = b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n"
        for pieces in ([body], [body[i:i + 1] for i in range(len(body))], [body[:7], body[7:]]):
            received = self.service.raw_exchange(self.head(extra=extra) + self.chunked(pieces))
            self.assertEqual([200], statuses(received), received)
        before = support.resident_bytes(self.service.daemon.pid)
        received = self.service.raw_exchange(self.head(extra=extra) + self.chunked([b" " * 65536] * 1024))
        self.assertEqual([413], statuses(received), received[:200])
        self.assertLess(support.resident_bytes(self.service.daemon.pid) - before, 16 << 20)

    def test_pipelined_requests_answer_in_order(self):
        with self.service.raw(timeout=10) as connection:
            connection.sendall(self.head("GET", "/livez") + self.head("GET", "/v1/models") + self.head("GET", "/livez"))
            received = b""
            while len(statuses(received)) < 3:
                ready, _, _ = select.select([connection], [], [], 5)
                self.assertTrue(ready, received)
                block = connection.recv(65536)
                if not block:
                    break
                received += block
            self.assertEqual([200] * len(statuses(received)), statuses(received))

    # --- Authentication ---

    def test_default_deny(self):
        open_paths = {"/", "/health", "/healthz", "/livez", "/readyz"}
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/models", "/v1/models/tiny", "/tokenize", "/detokenize",
                     "/metrics", "/admin", "/admin/status", "/v1", "/v1/models/", "/V1/models", "//v1/models",
                     "/slots", "/props", *open_paths):
            for method in ("GET", "POST", "HEAD", "OPTIONS", "PUT"):
                answer = self.service.request(method, path, b"{}" if method in ("POST", "PUT") else None, key=False)
                if path in open_paths and method in ("GET", "HEAD"):
                    self.assertEqual(200, answer.status, (method, path, answer))
                else:
                    self.assertIn(answer.status, (401, 404, 405), (method, path, answer))
                    if path in ("/v1/models", "/v1/chat/completions", "/tokenize", "/metrics"):
                        self.assertIn(answer.status, (401, 405), (method, path, answer))

    def test_forms_of_the_key(self):
        key = self.service.key
        for headers, status in [
            ({"Authorization": f"Bearer {key}"}, 200), ({"x-api-key": key}, 200), ({"Authorization": f"bearer {key}"}, 200),
            ({"Authorization": key}, 401), ({"Authorization": f"Basic {key}"}, 401), ({"x-api-key": key[:-1]}, 401),
            ({"x-api-key": key + "x"}, 401), ({"Authorization": "Bearer "}, 401), ({}, 401),
            ({"Authorization": "Bearer wrong", "x-api-key": key}, 401),
            ({"Authorization": "Bearer ' OR 1=1 --"}, 401),
        ]:
            with self.subTest(headers=headers):
                self.assertEqual(status, self.service.request("GET", "/v1/models", headers=headers, key=False).status)

    def test_an_inference_key_is_no_admin_key(self):
        answer = self.service.request("GET", "/metrics")
        self.assertIn(answer.status, (200, 403))  # /metrics takes any key, see docs/configuration.md
        self.assertNotIn(self.service.key.encode(), answer.body)
        self.assertNotIn(self.service.key, self.service.log.read_text("utf-8", "replace"))


if __name__ == "__main__":
    support.main()
