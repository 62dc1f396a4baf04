"""Exchanges with engines of others: recorded from a raw socket, kept as JSON lines, read back for replay.

One line of a fixture is one exchange:
  name        unique in its file
  request     method, path, body (parsed JSON, or null)
  status, headers (those that a client can depend on, names in lower case)
  chunks      the body as the engine wrote it: one string per chunk of the chunked transfer coding, or one for a body
              with a length; joined, they are the body
  framing     "chunked", "length" or "close": how the end of the body was marked
  ended       "complete", "client" (we went away in the middle) or "server" (the engine broke off)
or the end of a process:
  name, process: arguments, exit (negative: the signal), output (the lines that say why)
Paths of the recording machine are replaced. No library for HTTP: it would hide the boundaries.
"""
import json
import pathlib
import socket

FIXTURES = pathlib.Path(__file__).resolve().parent / "fixtures"
HEADERS_KEPT = ("content-type", "server", "retry-after", "allow", "connection", "keep-alive", "x-accel-buffering")


class Reader:
    """Bytes of one connection, by line, by count, or to the end."""

    def __init__(self, connection):
        self.connection = connection
        self.buffer = b""

    def fill(self):
        block = self.connection.recv(65536)
        self.buffer += block
        return bool(block)

    def line(self):
        while b"\r\n" not in self.buffer:
            if not self.fill():
                raise ConnectionError("closed within a line")
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def exactly(self, count):
        while len(self.buffer) < count:
            if not self.fill():
                raise ConnectionError(f"closed after {len(self.buffer)} of {count} bytes")
        block, self.buffer = self.buffer[:count], self.buffer[count:]
        return block

    def rest(self):
        while self.fill():
            pass
        block, self.buffer = self.buffer, b""
        return block


def send(connection, method, path, body, host):
    data = b"" if body is None else (body if isinstance(body, bytes) else json.dumps(body).encode())
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    connection.sendall(head.encode() + b"\r\n" + data)


def read_head(reader):
    status = int(reader.line().split()[1])
    headers = {}
    while line := reader.line():
        name, value = line.decode("latin-1").split(":", 1)
        headers[name.strip().lower()] = value.strip()
    return status, headers


def read_body(reader, headers, method, abort_after):
    """(chunks, framing, ended); stops after abort_after chunks when that is set."""
    chunks = []
    if method == "HEAD":
        return chunks, "length", "complete"
    if headers.get("transfer-encoding", "").lower() == "chunked":
        try:
            while count := int(reader.line().split(b";")[0], 16):
                chunks.append(reader.exactly(count))
                reader.line()
                if abort_after is not None and len(chunks) >= abort_after:
                    return chunks, "chunked", "client"
            reader.line()
        except ConnectionError:
            return chunks, "chunked", "server"
        return chunks, "chunked", "complete"
    if "content-length" in headers:
        try:
            chunks.append(reader.exactly(int(headers["content-length"])))
        except ConnectionError:
            return [reader.buffer], "length", "server"
        return chunks, "length", "complete"
    return [reader.rest()], "close", "complete"


def exchange(port, method, path, body=None, *, abort_after=None, timeout_s=300):
    """One request on a connection of its own; bytes as `body` are sent as they are. A connection that breaks before
    an answer is status 0."""
    kept = {"method": method, "path": path, "body": body.decode("latin-1") if isinstance(body, bytes) else body}
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        try:
            send(connection, method, path, body, f"127.0.0.1:{port}")
            reader = Reader(connection)
            status, headers = read_head(reader)
        except ConnectionError as error:
            return {"request": kept, "status": 0, "headers": {}, "chunks": [], "framing": "close", "ended": "server",
                    "error": type(error).__name__}
        chunks, framing, ended = read_body(reader, headers, method, abort_after)
    return {"request": kept, "status": status,
            "headers": {name: value for name, value in headers.items() if name in HEADERS_KEPT},
            "chunks": [chunk.decode("utf-8") for chunk in chunks], "framing": framing, "ended": ended}


def body_of(entry):
    return "".join(entry["chunks"])


def json_of(entry):
    return json.loads(body_of(entry))


def events_of(entry):
    """Data of each server-sent event, parsed; [DONE] as that string."""
    events = []
    for block in body_of(entry).replace("\r\n", "\n").split("\n\n"):
        for line in block.split("\n"):
            if line.startswith("data:"):
                data = line[5:].strip()
                events.append(data if data == "[DONE]" else json.loads(data))
    return events


def load(folder):
    """{name: exchange} of every file of a folder."""
    found = {}
    for file in sorted(pathlib.Path(folder).glob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            entry = json.loads(line)
            if entry["name"] in found:
                raise ValueError(f"{file}: {entry['name']} is there twice")
            found[entry["name"]] = entry
    return found


def save(file, entries):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(entry, ensure_ascii=True, separators=(",", ":")) + "\n" for entry in entries), "utf-8")
