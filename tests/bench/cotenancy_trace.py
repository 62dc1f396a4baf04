"""tests/bench/cotenancy --trace: replays an arrival script through tandemd and holds the answers against the bounds.

A trace is JSON lines, a JSON array or CSV with a header line; docs/cotenancy.md has the fields. Lines may come in any
order, keys and models may be unknown, bursts may be of any size: what cannot be a request is skipped and counted, all
else is sent, and every request that was sent must end exactly once.
"""
import asyncio
import csv
import dataclasses
import json
import math
import random
import time

import cotenancy_load as load
import support

# The fields and other words for them that traces use.
FIELDS = {
    "time": ("time", "t", "at", "arrival", "timestamp", "time_s", "arrival_s"),
    "model": ("model", "tenant", "role"),
    "key": ("key", "user", "client", "api_key"),
    "prompt_tokens": ("prompt_tokens", "prompt", "input_tokens", "prompt tokens", "input"),
    "answer_tokens": ("answer_tokens", "answer", "output_tokens", "answer tokens", "max_tokens", "output"),
}
KEYS_COMPARED = 12      # pairs of the keys that were served most
BODY_TOKENS_MAX = 400_000
REFUSED = (408, 429, 503)


def add_options(parser):
    group = parser.add_argument_group("--trace")
    group.add_argument("--trace", metavar="FILE")
    group.add_argument("--no-lease", action="store_true")
    group.add_argument("--slots", type=int, default=4, help="of each model (4)")
    group.add_argument("--speed", type=float, default=1.0, help="arrivals come so many times faster (1)")
    group.add_argument("--trace-seconds", type=float, default=1800, help="what has not ended by then is broken (1800)")


@dataclasses.dataclass
class Request:
    at: float
    model: str
    key: str
    prompt_tokens: int
    answer_tokens: int
    sent: float = 0.0
    status: int = 0
    tokens: list = dataclasses.field(default_factory=list)  # times
    finishes: int = 0
    dones: int = 0
    error: str = ""
    ended: float = 0.0
    queue: str = ""  # x-tandem-queue

    def outcome(self):
        if not self.ended:
            return "open"
        if self.status == 200:
            if self.error:
                return "failed"
            return "served" if self.finishes == 1 and self.dones == 1 else "no single end"
        if self.status in REFUSED:
            return "refused"
        return "rejected" if 400 <= self.status < 500 else "failed" if self.status else "cut"


class TraceError(Exception):
    """The file is no trace at all."""


def read_rows(text):
    text = "\n".join(line for line in text.lstrip("\ufeff").splitlines() if not line.lstrip().startswith("#"))
    start = text.lstrip()[:1]
    if start == "[":
        try:
            return json.loads(text)
        except ValueError as error:
            raise TraceError(f"no JSON array: {error}") from error
    if start == "{" or not start:
        rows = []
        for line in text.splitlines():
            try:
                rows.append(json.loads(line) if line.strip() else None)
            except ValueError:
                rows.append("unreadable")
        return [row for row in rows if row is not None]
    return list(csv.DictReader([line for line in text.splitlines() if line.strip()], skipinitialspace=True))


def field(row, name):
    for word in FIELDS[name]:
        if word in row:
            return row[word]
    return None


def count_of(value):
    """A whole number of tokens, at least 1; None where there is no number at all."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return None if not math.isfinite(number) else max(1, min(int(number), BODY_TOKENS_MAX))


def read_trace(text):
    """(requests in order of arrival, {what was odd: how often})."""
    requests, odd = [], {}

    def note(what):
        odd[what] = odd.get(what, 0) + 1

    last = None
    for row in read_rows(text):
        if not isinstance(row, dict):
            note("skipped: no object")
            continue
        try:
            at = float(field(row, "time"))
        except (TypeError, ValueError):
            at = math.nan
        prompt, answer = count_of(field(row, "prompt_tokens")), count_of(field(row, "answer_tokens"))
        if not math.isfinite(at) or prompt is None or answer is None:
            note("skipped: no time or no token counts")
            continue
        for name, count in (("prompt", prompt), ("answer", answer)):
            if float(field(row, f"{name}_tokens")) < 1:
                note(f"{name}_tokens below 1, sent as 1")
        if last is not None and at < last:
            note("out of order, sorted")
        last = at
        key = field(row, "key")
        requests.append(Request(at, str(field(row, "model") or "default"), "" if key is None else str(key), prompt,
                                answer))
    if not requests:
        raise TraceError(f"holds no request; {odd or 'it is empty'}")
    requests.sort(key=lambda request: request.at)
    for request in reversed(requests):
        request.at -= requests[0].at
    return requests, odd


async def send(service, keys, request, chance):
    """One request on a connection of its own; whatever happens is written into it."""
    body = json.dumps({"model": request.model, "prompt": load.prompt_ids(service, chance, request.prompt_tokens),
                       "max_tokens": request.answer_tokens, "temperature": 0, "ignore_eos": True,
                       "stream": True}).encode()
    head = (f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAuthorization: Bearer "
            f"{keys[request.key]}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode()
    writer = None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port, limit=1 << 22)
        request.sent = time.monotonic()
        writer.write(head + body)
        while line := await reader.readline():
            now = time.monotonic()
            if not request.status and line.startswith(b"HTTP/1.1 "):
                request.status = int(line.split()[1])
            elif line.lower().startswith(b"x-tandem-queue:"):
                request.queue = line.split(b":", 1)[1].strip().decode("utf-8", "replace")
            elif line.startswith(b"data: [DONE]"):
                request.dones += 1
            elif line.startswith(b"data: "):
                take_event(request, line, now)
            elif request.status != 200 and b'"error"' in line:
                request.error = line[:300].decode("utf-8", "replace").strip()
    except (OSError, ValueError, asyncio.IncompleteReadError) as error:
        request.error = request.error or repr(error)
    finally:
        request.ended = time.monotonic()
        if writer is not None:
            writer.close()


def take_event(request, line, now):
    if b'"error"' in line and b'"choices"' not in line:
        request.error = line[:300].decode("utf-8", "replace")
    elif b'"finish_reason":null' in line:
        request.tokens.append(now)
    elif b'"finish_reason"' in line:
        request.finishes += 1


async def sample(service, samples):
    """Every second, what each engine has had of the device and whether it works."""
    while True:
        one = {"time": time.monotonic()}
        for role in ("default", "optional"):
            done = await asyncio.create_subprocess_exec(
                str(support.BIN / "tandemctl"), "--config", str(service.folder / "config.toml"), "model", "show", role,
                "--json", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL)
            try:
                one[role] = json.loads((await done.communicate())[0] or b"{}").get("stats") or {}
            except ValueError:
                one[role] = {}
        samples.append(one)
        await asyncio.sleep(1.0)


async def run(service, keys, requests, options, samples):
    chance = random.Random(options.seed)
    sampler = asyncio.create_task(sample(service, samples))
    began, skipped, tasks = time.monotonic(), 0.0, set()
    for request in requests:
        due = request.at / options.speed - skipped
        wait = due - (time.monotonic() - began)
        if wait > 2.0:  # a pause in which nothing runs tells nothing
            if tasks:
                await asyncio.wait(tasks, timeout=wait - 1.0)
            left = due - (time.monotonic() - began)
            if not any(not task.done() for task in tasks) and left > 1.0:
                skipped += left - 1.0
            wait = request.at / options.speed - skipped - (time.monotonic() - began)
        await asyncio.sleep(max(0.0, wait))
        tasks = {task for task in tasks if not task.done()}
        tasks.add(asyncio.create_task(send(service, keys, request, chance)))
        if time.monotonic() - began > options.trace_seconds:
            break
    if tasks:
        left = options.trace_seconds - (time.monotonic() - began)
        _, open_tasks = await asyncio.wait(tasks, timeout=max(1.0, left))
        for task in open_tasks:
            task.cancel()
        for request in requests:  # what was cancelled here has not ended
            if any(not task.done() for task in open_tasks) and not request.dones and request.status == 200:
                request.ended = 0.0
    sampler.cancel()
    return time.monotonic() - began


def load_trace(options):
    with open(options.trace, encoding="utf-8", errors="replace") as file:
        return read_trace(file.read())


def replay(service, options, requests, odd):
    keys = {}
    for name in dict.fromkeys(request.key for request in requests):
        made = service.ctl("key", "add", f"trace-{len(keys)}", "--scope", "inference", "--json")
        keys[name] = json.loads(made)["key"]
    samples = []
    seconds = asyncio.run(run(service, keys, requests, options, samples))
    return make_report(requests, odd, samples, seconds, books(service), options)


def books(service):
    """What is left over in each engine when all is done, after at most ten seconds; empty: nothing."""
    left = {}
    for role in ("default", "optional"):
        deadline = time.monotonic() + 10
        while True:
            stats = json.loads(service.ctl("model", "show", role, "--json")).get("stats") or {}
            held = (stats.get("kv_pages_total", 0) - stats.get("kv_pages_free", 0) - stats.get("kv_pages_cached", 0))
            problem = {"running": stats.get("running"), "waiting": stats.get("waiting"), "pages": held}
            if not any(problem.values()):
                break
            if time.monotonic() > deadline:
                left[role] = problem
                break
            time.sleep(0.2)
    return left


# --- What is reported ---

def service_steps(requests):
    """{key: [(time, tokens)]}: what each key got; a prompt when its first token came."""
    steps = {}
    for request in requests:
        if request.tokens:
            mine = steps.setdefault(request.key, [])
            mine.append((request.tokens[0], request.prompt_tokens + 1))
            mine.extend((moment, 1) for moment in request.tokens[1:])
    return {key: sorted(mine) for key, mine in steps.items()}


def backlog(requests):
    """Maximal intervals in which at least one request of the key waits for its first token."""
    edges = []
    for request in requests:
        if request.tokens and request.sent:
            edges += [(request.sent, 1), (request.tokens[0], -1)]
    out, depth, begin = [], 0, 0.0
    for moment, step in sorted(edges):
        if depth == 0:
            begin = moment
        depth += step
        if depth == 0:
            out.append((begin, moment))
    return out


def largest_lead(mine, other, interval):
    """The most that `other` gained over `mine` between any two moments of the interval."""
    events = sorted([(moment, -tokens) for moment, tokens in mine if interval[0] < moment < interval[1]]
                    + [(moment, tokens) for moment, tokens in other if interval[0] < moment < interval[1]])
    lead = least = worst = 0
    for _, tokens in events:
        lead += tokens
        least = min(least, lead)
        worst = max(worst, lead - least)
    return worst


def overlap(first, second):
    both = ((max(a[0], b[0]), min(a[1], b[1])) for a in first for b in second)
    return [(begin, end) for begin, end in both if end > begin]


def fairness(requests, slots):
    """Virtual counters (VTC): two backlogged keys differ by 2U at most; a backlogged one trails any other by 4U at most,
    U = max(longest prompt, tokens that run at once)."""
    out = []
    for model in sorted({request.model for request in requests if request.tokens}):
        mine = [request for request in requests if request.model == model]
        served = [request for request in mine if request.tokens]
        unit = max(max(request.prompt_tokens for request in served),
                   slots * max(request.prompt_tokens + len(request.tokens) for request in served))
        steps = service_steps(mine)
        waits = {key: backlog([request for request in mine if request.key == key]) for key in steps}
        top = sorted(steps, key=lambda key: -sum(tokens for _, tokens in steps[key]))[:KEYS_COMPARED]
        # One with little work is the one that might starve.
        top += sorted((key for key in steps if key not in top), key=lambda key: len(steps[key]))[:KEYS_COMPARED]
        both = one = 0
        for a in top:
            for b in top:
                if a == b:
                    continue
                one = max([one] + [largest_lead(steps[a], steps[b], interval) for interval in waits[a]])
                both = max([both] + [largest_lead(steps[a], steps[b], interval)
                                     for interval in overlap(waits[a], waits[b])])
        out.append({"model": model, "unit": unit, "backlogged_pair": both, "backlogged_one": one,
                    "held": both <= 2 * unit and one <= 4 * unit, "keys": len(steps)})
    return out


def device_shares(samples):
    """Device time of both while both worked at two looks in a row, and the default model's waits for the lease."""
    served = {"default": 0, "optional": 0}
    for before, after in zip(samples, samples[1:]):
        stats = [sample[role] for sample in (before, after) for role in served]
        if all(each.get("running", 0) > 0 for each in stats):
            for role in served:
                served[role] += after[role].get("lease_served_us", 0) - before[role].get("lease_served_us", 0)
    total = sum(served.values())
    last = samples[-1]["default"] if samples else {}
    return {"both_busy_s": round(total / 1e6, 2), "optional_share": served["optional"] / total if total else None,
            "default_wait_p99_us": last.get("lease_wait_p99_us"),
            # It follows the default model's clients: the waits are of the longest one.
            "quantum_us": max((sample["default"].get("lease_quantum_us", 0) for sample in samples), default=0),
            "overruns": [samples[-1][role].get("lease_overruns", 0) for role in served] if samples else []}


def make_report(requests, odd, samples, seconds, left, options):
    outcomes, keys = {}, {}
    for request in requests:
        outcome = request.outcome()
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        row = keys.setdefault((request.model, request.key), {"requests": 0, "served": 0, "refused": 0, "prompt": 0,
                                                             "answer": 0, "first": []})
        row["requests"] += 1
        row["served"] += outcome == "served"
        row["refused"] += outcome == "refused"
        if request.tokens:
            row["prompt"] += request.prompt_tokens
            row["answer"] += len(request.tokens)
            row["first"].append(request.tokens[0] - request.sent)
    table = [{"model": model, "key": key, **{name: row[name] for name in row if name != "first"},
              "first_token_p50_s": load.percentile(row["first"], 0.5), "first_token_max_s": max(row["first"], default=None)}
             for (model, key), row in sorted(keys.items())]
    gaps = {}
    for request in requests:
        gaps.setdefault(request.model, []).extend(
            1e3 * (after - before) for before, after in zip(request.tokens, request.tokens[1:]))
    latency = {model: {"p50": load.percentile(values, 0.5), "p99": load.percentile(values, 0.99),
                       "max": max(values)} for model, values in gaps.items() if values}
    bad = [f"{request.model} {request.key!r}: {request.outcome()} {request.error[:200]}" for request in requests
           if request.outcome() in ("open", "failed", "no single end", "cut")]
    return {"trace": str(options.trace), "seconds": round(seconds, 1), "requests": len(requests), "odd": odd,
            "outcomes": outcomes, "keys": table, "inter_token_ms": latency,
            "fairness": fairness(requests, options.slots), "lease": device_shares(samples),
            "left_over": left, "bad": bad[:20], "no_lease": options.no_lease}


def verdicts(report):
    """(what, figure, bound, held or None)."""
    lease = report["lease"]
    ended = sum(report["outcomes"].get(kind, 0) for kind in ("served", "refused", "rejected"))
    out = [("every request one terminal event", f"{ended} of {report['requests']}", "all", ended == report["requests"]),
           ("nothing left over in the engines", json.dumps(report["left_over"]), "{}", not report["left_over"])]
    for row in report["fairness"]:
        out.append((f"service of {row['keys']} keys, {row['model']}: two that wait / one that waits",
                    f"{row['backlogged_pair']} / {row['backlogged_one']} tokens",
                    f"<= {2 * row['unit']} / {4 * row['unit']}", row["held"]))
    share = lease["optional_share"]
    enough = share is not None and lease["both_busy_s"] >= 5.0 and not report["no_lease"]
    out.append((f"optional share of {lease['both_busy_s']} s device time with both at work",
                "-" if share is None else f"{share:.3f}", "0.10 to 0.20", 0.10 <= share <= 0.20 if enough else None))
    wait, quantum = lease["default_wait_p99_us"], lease["quantum_us"]
    measured = wait is not None and bool(quantum) and enough
    out.append(("default's wait for the lease, p99", f"{wait} us", f"<= 2 x {quantum} us + 1 ms",
                wait <= 2 * quantum + 1000 if measured else None))
    return out


def print_report(report):
    print(f"{report['trace']}: {report['requests']} requests in {report['seconds']} s; {report['outcomes']}")
    for what, count in report["odd"].items():
        print(f"odd: {what}: {count}")
    print("\n| model | key | requests | served | refused | prompt tokens | answer tokens | first token p50 / max, s |")
    print("|---|---|---|---|---|---|---|---|")
    for row in report["keys"][:60]:
        first = "-" if row["first_token_max_s"] is None else (f"{row['first_token_p50_s']:.2f} / "
                                                              f"{row['first_token_max_s']:.2f}")
        print(f"| {row['model']} | {row['key']} | {row['requests']} | {row['served']} | {row['refused']} | "
              f"{row['prompt']} | {row['answer']} | {first} |")
    for model, figures in report["inter_token_ms"].items():
        print(f"\n{model}: between tokens p50 {figures['p50']:.1f}, p99 {figures['p99']:.1f}, max {figures['max']:.1f} ms")
    print("\n| bound | figure | | |\n|---|---|---|---|")
    broken = False
    for what, figure, bound, held in verdicts(report):
        broken = broken or held is False
        print(f"| {what} | {figure} | {bound} | {'not measured' if held is None else 'held' if held else '**broken**'} |")
    for line in report["bad"]:
        print(f"bad: {line}")
    return 1 if broken else 0
