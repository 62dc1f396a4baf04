#!/usr/bin/env python3
"""The part of ./quickstart after the build: models, configuration, start, wait, ask; and stop.

  demo_service.py start (--pair A B [--fallback] | --default-file F --optional-file F) (--ask | --no-ask)
  demo_service.py stop

State lies in .tandem/ beside the sources (TANDEM_DEMO_DIR overrides it, for tests).
"""
import argparse
import hashlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
STATE = pathlib.Path(os.environ.get("TANDEM_DEMO_DIR") or ROOT / ".tandem").absolute()
BIN = pathlib.Path(os.environ.get("TANDEM_BIN_DIR") or ROOT / "build" / "release" / "bin").absolute()
CONFIG = STATE / "config.toml"
LOG = STATE / "log"
MARK = "TANDEM_DEMO_STATE"  # in the environment of what we start: how `stop` finds engines without a tandemd
READY_S = 600
STOP_S = 60
SOCKET_PATH_MAX = 80  # of the run directory; a socket's whole path may have 107 bytes
QUESTION = "What is the capital of France?"
TINY = ROOT / "tests" / "models" / "tiny-hybrid-q8_0.gguf"


class DemoError(Exception):
    """What went wrong, in a sentence for the user."""


def say(text=""):
    print(text, flush=True)


# --- Processes ---------------------------------------------------------------------------------------------

def our_processes():
    """Pids of tandemd, engines and guard that were started for this state directory, tandemd first."""
    mark = f"{MARK}={STATE}".encode()
    places = tuple(os.fsencode(f"{place}/") for place in (STATE, run_folder()))
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
            name = (entry / "comm").read_text().strip()
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        ours = mark in environment or any(argument.startswith(places) for argument in arguments)
        if ours and name in ("tandemd", "tandem-engine", "tandem-guard") and state != "Z":
            found.append((not name.startswith("tandemd"), int(entry.name)))
    return [pid for _, pid in sorted(found)]


def is_tandemd(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "tandemd"
    except OSError:
        return False


def signal_pid(pid, number):
    """Through a pidfd, so that a pid used anew in between is not hit."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if pid in our_processes():
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


def wait_gone(pids, seconds):
    """True once none of them runs."""
    deadline = time.monotonic() + seconds
    while True:
        alive = [pid for pid in our_processes() if pid in pids]
        if not alive:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)


def stop():
    """tandemd ends its engines in order; what is left after that, or without a tandemd, is ended here."""
    pids = our_processes()
    if not pids:
        say("nothing is running")
        return
    daemons = [pid for pid in pids if is_tandemd(pid)]
    for pid in daemons:
        signal_pid(pid, signal.SIGTERM)
    if daemons and not wait_gone(daemons, STOP_S):
        say("tandemd did not end in time: killing it")
        for pid in daemons:
            signal_pid(pid, signal.SIGKILL)
        wait_gone(daemons, 10)
    for number, seconds in ((signal.SIGTERM, 15), (signal.SIGKILL, 15)):
        rest = our_processes()
        for pid in rest:
            signal_pid(pid, number)
        if wait_gone(rest, seconds) and not our_processes():
            say("stopped")
            return
    raise DemoError(f"these processes would not end: {our_processes()}")


# --- Models ------------------------------------------------------------------------------------------------

def fetch(name):
    """Path of a demo model, or None when it cannot be had (the fetcher has said why)."""
    if name == "tiny-hybrid":
        return TINY
    done = subprocess.run([str(ROOT / "tools" / "fetch_models"), "--path", name], stdout=subprocess.PIPE, text=True,
                          check=False)
    return pathlib.Path(done.stdout.strip().splitlines()[-1]) if done.returncode == 0 else None


def pair_by_name(first, second, fallback):
    """[(model name, file), (model name, file)]"""
    files = [fetch(first), fetch(second)]
    if None in files:
        if not fallback:
            raise DemoError("a model could not be fetched; `./quickstart --small` works without a network")
        say(f"{first} could not be fetched (no network?): "
            "the pair falls back to two copies of the tiny hybrid that ships with the sources")
        return [("tiny-hybrid", TINY), ("tiny-hybrid-2", TINY)]
    names = [first, second if second != first else f"{second}-2"]
    return list(zip(names, files))


def pair_by_file(first, second):
    files = [pathlib.Path(first).resolve(), pathlib.Path(second).resolve()]
    for file in files:
        with open(file, "rb") as opened:
            if opened.read(4) != b"GGUF":
                raise DemoError(f"{file} is no GGUF file")
    names = [file.stem.lower() for file in files]
    safe = ["".join(char if char.isalnum() or char in "._-" else "-" for char in name)[:60] for name in names]
    if safe[0] == safe[1]:
        safe[1] += "-2"
    return list(zip(safe, files))


def link_models(pair):
    """Links under the publisher's file names; returns the pair with the links' paths."""
    folder = STATE / "models"
    folder.mkdir(parents=True, exist_ok=True)
    linked = []
    taken = {}
    for name, file in pair:
        link = folder / file.name
        if taken.get(link, file) != file:
            link = folder / f"{name}-{file.name}"
        taken[link] = file
        if not (link.is_symlink() and os.readlink(link) == str(file)):
            fresh = folder / f".{link.name}.new"
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(file)
            os.replace(fresh, link)
        linked.append((name, link))
    return linked


# --- Configuration -----------------------------------------------------------------------------------------

def quoted(text):
    return json.dumps(str(text), ensure_ascii=False)  # a JSON string is a TOML basic string


def run_folder():
    """Where the sockets are: in .tandem/ unless its path is too long for a socket's address."""
    inside = STATE / "run"
    if len(os.fsencode(inside)) <= SOCKET_PATH_MAX:
        return inside
    digest = hashlib.sha256(os.fsencode(STATE)).hexdigest()[:16]
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return pathlib.Path(base) / f"tandem-{os.getuid()}-{digest}"


def free_port():
    """The port of last time if it is free, else one from 8080 up, else any."""
    wishes = list(range(8080, 8100)) + [0]
    address = STATE / "address"
    if address.exists():
        last = address.read_text().strip().rsplit(":", 1)[-1]
        if last.isdigit():
            wishes.insert(0, int(last))
    for port in wishes:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise DemoError("no free port on 127.0.0.1")


def config_text(pair, port):
    run = run_folder()
    lines = ["# Written by ./quickstart; see docs/configuration.md. Edits are lost when it runs again.",
             "[server]",
             f'listen = "127.0.0.1:{port}"',
             f"state_dir = {quoted(STATE / 'state')}",
             f"run_dir = {quoted(run)}",
             "", "[limits]", "streams = 512"]
    for role, (name, file) in zip(("default", "optional"), pair):
        lines += ["", f"[model.{role}]", f"name = {quoted(name)}", f"file = {quoted(file)}",
                  "context_tokens = 4096", "slots = 4", "queue_max = 256"]
    return "\n".join(lines) + "\n"


def write_file(path, text, mode=0o644):
    """Whole or not at all."""
    fresh = path.with_name(f".{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(fresh, mode)
    os.replace(fresh, path)


# --- Start -------------------------------------------------------------------------------------------------

def tandemctl(*arguments, check=True):
    done = subprocess.run([str(BIN / "tandemctl"), "--config", str(CONFIG), *arguments], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if check and done.returncode != 0:
        raise DemoError(f"tandemctl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done


def start_daemon():
    """A session of its own, nothing of ours kept open: our caller's pipes close when we end."""
    with open(LOG, "ab") as log:
        child = subprocess.Popen([str(BIN / "tandemd"), "--config", str(CONFIG)], stdin=subprocess.DEVNULL,
                                 stdout=log, stderr=log, start_new_session=True, cwd=str(STATE),
                                 env={**os.environ, MARK: str(STATE)})
    return child


def log_tail(start):
    with open(LOG, "rb") as log:
        log.seek(start)
        return b"\n".join(log.read().splitlines()[-15:]).decode("utf-8", "replace")


def model_states():
    done = tandemctl("status", "--json", check=False)
    if done.returncode != 0:
        return {}
    try:
        return {model["name"]: model for model in json.loads(done.stdout)["models"]}
    except (ValueError, KeyError, TypeError):
        return {}


def wait_ready(child, pair, log_start):
    """Until both models are ready; says what each is doing whenever that changes."""
    deadline = time.monotonic() + READY_S
    shown = {}
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise DemoError(f"tandemd ended with status {child.returncode}; the end of {LOG}:\n{log_tail(log_start)}")
        states = model_states()
        for name, model in states.items():
            if shown.get(name) != model["state"]:
                shown[name] = model["state"]
                say(f"{name}: {model['state']}")
            if model["state"] == "failed":
                raise DemoError(f"{name} failed: {model.get('message', '')}\n{log_tail(log_start)}")
        if len(states) >= 2 and all(states.get(name, {}).get("state") == "ready" for name, _ in pair):
            return
        time.sleep(0.2)
    raise DemoError(f"the models were not ready after {READY_S} s; the end of {LOG}:\n{log_tail(log_start)}")


def request(path, key, body=None, timeout=300):
    """(status, JSON) of one HTTP call to the service."""
    address = (STATE / "address").read_text().strip()
    call = urllib.request.Request(address + path, headers={"Authorization": f"Bearer {key}"})
    if body is not None:
        call.data = json.dumps(body).encode()
        call.add_header("Content-Type", "application/json")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback: never through a proxy
    try:
        with opener.open(call, timeout=timeout) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode("utf-8", "replace")
    except OSError as error:
        return 0, str(error)


def inference_key():
    """The key of last time if it still works, else a new one."""
    path = STATE / "key"
    if path.exists():
        key = path.read_text().strip()
        if key and request("/v1/models", key)[0] == 200:
            return key
    made = json.loads(tandemctl("key", "add", "quickstart", "--scope", "inference", "--json").stdout)
    write_file(path, made["key"] + "\n", 0o600)
    return made["key"]


def ask(pair):
    for name, _ in pair:
        say(f"\n{name}> {QUESTION}")
        answer = tandemctl("chat", "--model", name, "--max-tokens", "300", "--temperature", "0", QUESTION).stdout.strip()
        if not answer:
            raise DemoError(f"{name} gave an empty answer")
        say(answer)


def prove_answers(pair, key):
    """One token of each model, by completion: the user's own file may have no chat template."""
    for name, _ in pair:
        status, body = request("/v1/completions", key, {"model": name, "prompt": "Hello", "max_tokens": 1})
        if status != 200 or body["usage"]["completion_tokens"] < 1:
            raise DemoError(f"{name} does not answer: {status} {body}")


def keeps_running(pair, text):
    """True when the present service is exactly the one asked for, from the present binaries."""
    pids = our_processes()
    daemons = [pid for pid in pids if is_tandemd(pid)]
    if len(daemons) != 1 or not CONFIG.exists() or CONFIG.read_text() != text:
        return False
    try:
        if any(os.readlink(f"/proc/{pid}/exe").endswith(" (deleted)") for pid in pids):
            return False
    except OSError:
        return False
    states = model_states()
    return all(states.get(name, {}).get("state") == "ready" for name, _ in pair)


def last_port():
    try:
        return int((STATE / "address").read_text().strip().rsplit(":", 1)[-1])
    except (OSError, ValueError):
        return None


def start(options):
    STATE.mkdir(parents=True, exist_ok=True)
    if options.pair:
        pair = pair_by_name(*options.pair, options.fallback)
    else:
        pair = pair_by_file(options.default_file, options.optional_file)
    pair = link_models(pair)
    say(f"default: {pair[0][0]} ({pair[0][1].name}); optional: {pair[1][0]} ({pair[1][1].name})")

    say("\n== Service")
    port = last_port()
    if port and keeps_running(pair, config_text(pair, port)):
        say("already running with this pair")
    else:
        if our_processes():
            say("stopping the one that runs")
            stop()
        port = free_port()
        run = run_folder()
        run.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_file(CONFIG, config_text(pair, port))
        write_file(STATE / "address", f"http://127.0.0.1:{port}\n")
        log_start = LOG.stat().st_size if LOG.exists() else 0
        child = start_daemon()
        try:
            wait_ready(child, pair, log_start)
        except BaseException:
            stop()
            raise
    key = inference_key()
    prove_answers(pair, key)
    if options.ask:
        ask(pair)
    say(f"""
Tandem answers at http://127.0.0.1:{port} (OpenAI API under /v1)
key:  {key}   (also in .tandem/key)
log:  .tandem/log
stop: ./quickstart stop""")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    starting = commands.add_parser("start")
    starting.add_argument("--pair", nargs=2)
    starting.add_argument("--fallback", action="store_true")
    starting.add_argument("--default-file")
    starting.add_argument("--optional-file")
    starting.add_argument("--ask", action="store_true")
    starting.add_argument("--no-ask", dest="ask", action="store_false")
    commands.add_parser("stop")
    options = parser.parse_args()
    try:
        if options.command == "stop":
            stop()
        else:
            start(options)
    except (DemoError, OSError) as error:
        print(f"quickstart: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
