#!/usr/bin/env python3
"""tandem-hostsim's exit status: 0 as expected, 1 a mismatch, 2 a script that cannot be used."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

BIN = pathlib.Path(os.environ["TANDEM_BIN_DIR"]) / "tandem-hostsim"
HOST = {"host": {"total": "121.7GiB"}}
TENANT = {"tenant": {"role": "optional", "profile": {"weights": "20GiB"}, "wanted": True}}
END = {"end": 100}


def run(*lines):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
        file.flush()
        return subprocess.run([BIN, file.name], capture_output=True, text=True, timeout=60)


def check(name, done, status, text=""):
    ok = done.returncode == status and text in done.stdout + done.stderr
    print(("ok   " if ok else "FAIL ") + name)
    if not ok:
        print(done.returncode, done.stdout, done.stderr)
    return ok


def main():
    running = {"expect_state": {"optional": "running"}, "at": 90}
    start = {"event": "command", "command": "start"}
    ok = [
        check("as expected", run(HOST, TENANT, running, {"expect": start, "count": 1}, END), 0, '"event":"end"'),
        check("every output line is JSON", run(HOST, TENANT, END), 0),
        check("too rarely", run(HOST, TENANT, {"expect": start, "count": 2}, END), 1, "line 3: "),
        check("never, but happened", run(HOST, TENANT, {"expect": start, "count": 0}, END), 1, "mismatch"),
        check("outside of its time", run(HOST, TENANT, {"expect": start, "from": 50}, END), 1, "mismatch"),
        check("wrong state", run(HOST, TENANT, {"expect_state": {"optional": "off"}, "at": 90}, END), 1,
              "optional was running"),
        check("unknown state key", run(HOST, TENANT, {"expect_state": {"other": "off"}, "at": 90}, END), 1, "other"),
        check("a state after the end", run(HOST, TENANT, {"expect_state": {"optional": "off"}, "at": 900}, END), 1,
              "not known"),
        check("wrong order", run(HOST, TENANT, {"expect_order": [{"event": "state", "state": "running"}, start]}, END), 1,
              "order"),
        check("bounds of numbers", run(HOST, TENANT, {"expect": {"event": "end", "lowest_available_gib": {"lt": 50}}}, END),
              1, "mismatch"),
        check("no host", run(TENANT, END), 2, "line 1: "),
        check("no end", run(HOST, TENANT), 2, "end"),
        check("no JSON", run(HOST, "{", END), 2, "line 2: "),
        check("unknown key of the host", run({"host": {"total": "1GiB", "ram": 1}}, END), 2, "unknown key ram"),
        check("unknown event", run(HOST, {"at": 1, "do": "explode"}, END), 2, "explode"),
        check("unknown key of an event", run(HOST, TENANT, {"at": 1, "do": "start", "whom": "optional"}, END), 2, "whom"),
        check("event for nobody", run(HOST, {"at": 1, "do": "start", "who": "optional"}, END), 2, "line 2: "),
        check("bytes that are none", run({"host": {"total": "12 apples"}}, END), 2, "total"),
        check("negative time", run(HOST, TENANT, {"at": -1, "do": "start"}, END), 2, "at"),
        check("time without end", run(HOST, TENANT, {"end": 1e12}), 2, "end"),
        check("a role twice", run(HOST, TENANT, TENANT, END), 2, "twice"),
    ]
    for line in run(HOST, TENANT, END).stdout.splitlines():
        json.loads(line)
    return 0 if all(ok) else 1


sys.exit(main())
