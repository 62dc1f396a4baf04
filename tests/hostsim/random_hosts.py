#!/usr/bin/env python3
"""Scripts that nobody wrote: boxes of many sizes, and random wishes, failures, hogs and habits. Whatever a script does, the order of stops
and starts holds, nobody waits in silence, and the run ends by itself."""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

BIN = pathlib.Path(os.environ["TANDEM_BIN_DIR"]) / "tandem-hostsim"
BOXES_GIB = [15.6, 24, 32, 64, 96, 119.7, 121.7, 128]
SCRIPTS = 48
END_S = 1200
ALIVE = {"loading", "running", "draining", "terminating", "killing"}
GATE = {"gate_closed", "gate_stays_closed", "stopped_by_guard"}
MOVING = {"draining", "terminating", "killing", "memory_wait", "reclaim", "loading"}


def profile(rng, name, total, share):
    size = total * share
    weights, kv = round(size * rng.uniform(0.3, 0.7), 2), round(size * rng.uniform(0.1, 0.3), 2)
    out = {"name": name, "weights": f"{weights}GiB", "kv": f"{kv}GiB", "overhead": f"{rng.uniform(0, total / 60):.2f}GiB"}
    if rng.random() < 0.3:
        out["actual_peak"] = f"{weights + kv + rng.uniform(0.05, 0.2) * total:.2f}GiB"
    return out


def event(rng, at, total):
    who = rng.choice(["default", "optional"])
    free = f"{total * rng.choice([0.02, 0.05, 0.08, 0.12, 0.2, 0.5]):.2f}GiB"
    kinds = [
        {"do": rng.choice(["start", "stop", "restart", "restart"]), "who": who},
        {"do": "drop_caches"},
        {"do": "heavy_work", "name": "download"},
        {"do": "exit", "who": who},
        {"do": "cache", "to": f"{total * rng.uniform(0, 0.6):.2f}GiB", "over_s": rng.choice([0, 5])},
        {"do": "available", "to": free, "over_s": rng.choice([0, 1, 10, 60])},
        {"do": "grow", "who": "other processes", "to": f"{total * rng.choice([0, 0, 0.1, 0.3, 0.6]):.2f}GiB", "over_s": rng.choice([0, 3, 20])},
        {"do": "psi", "some": rng.choice([0, 0, 8, 20]), "full": rng.choice([0, 0, 4, 10])},
        {"do": "nvrm", "lines": rng.choice([1, 9, 30])},
        {"do": "process", "who": who, "load_s": rng.choice([1, 20, 90]), "release_s": rng.choice([0, 1, 30, 240]), "drain_s": rng.choice([0, 10, 100]),
         "ignores_term": rng.random() < 0.2, "fails": rng.choice([0, 0, 1, 9])},
    ]
    return {"at": at, **rng.choice(kinds)}


def script(seed):
    rng = random.Random(seed)
    total = BOXES_GIB[seed % len(BOXES_GIB)]
    lines = [{"host": {"total": f"{total}GiB", "cache": f"{total * rng.uniform(0, 0.3):.2f}GiB"}}]
    for role, share in (("default", rng.uniform(0.15, 0.45)), ("optional", rng.uniform(0.1, 0.4))):
        tenant = {"role": role, "profile": profile(rng, "full", total, share), "running": rng.random() < 0.5, "wanted": True}
        if rng.random() < 0.5:
            tenant["known_good"] = profile(rng, "small", total, share / 2)
        lines.append({"tenant": tenant})
    lines += [event(rng, at, total) for at in sorted(rng.uniform(0, END_S * 0.6) for _ in range(rng.randint(3, 14)))]
    return [*lines, {"end": END_S}]


def problems(events):
    """What must not be, in the output of one run."""
    state, since, said = {}, {}, {}
    for e in events:
        who = e.get("who")
        if e["event"] == "state":
            state[who], since[who] = e["state"], e["t"]
            if e["state"] == "loading" and any(s in MOVING for w, s in state.items() if w != who):
                yield f"t={e['t']}: {who} loads beside {state}"
        if e["event"] == "command" and e["command"] == "reclaim" and state.get(who) in ALIVE:
            yield f"t={e['t']}: caches dropped while {who} is {state[who]}"
        if e["event"] == "incident":
            if e["incident"] in ("gate_stays_closed", "gate_fallback") and "gate_closed" not in said.get(who, set()):
                yield f"t={e['t']}: {e['incident']} of {who}, and nobody was told after two minutes"
            said.setdefault(who, set()).add(e["incident"])
        if e["event"] == "cleared":
            if e["incident"] not in said.get(who, set()):
                yield f"t={e['t']}: {e['incident']} of {who} was never raised"
            said[who].discard(e["incident"])
        if e["event"] == "end" and e["lowest_available_gib"] < 0:
            yield "less than nothing was available"
    waits_for = {w: END_S - since.get(w, 0) for w in state}
    for who, now in state.items():
        other = next((s for w, s in state.items() if w != who), "off")
        if now in ("gate", "killing", "memory_wait") and waits_for[who] > 130 and not said.get(who) and other not in MOVING:
            yield f"{who} waits in {now} for {waits_for[who]:.0f} s and nobody was told"
        if now == "gate" and waits_for[who] > 130 and other not in MOVING and not said.get(who, set()) & GATE:
            yield f"{who} waits at the gate for {waits_for[who]:.0f} s, and what was told is {said.get(who)}"
        if now == "given_up" and not said.get(who):
            yield f"{who} was given up and nobody was told"
        if now in ("reclaim", "terminating", "draining") and waits_for[who] > 200:
            yield f"{who} hangs in {now}"


def main():
    bad = 0
    for seed in range(SCRIPTS):
        lines = script(seed)
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write("\n".join(json.dumps(line) for line in lines))
            file.flush()
            done = subprocess.run([BIN, file.name], capture_output=True, text=True, timeout=60)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        found = [f"status {done.returncode}: {done.stderr[-300:]}"] if done.returncode != 0 else list(problems(events))
        if found:
            bad += 1
            print(f"FAIL seed {seed}:", *found, sep="\n  ")
            print("  script:", *map(json.dumps, lines), sep="\n    ")
    print(f"{SCRIPTS - bad} of {SCRIPTS} scripts as they must be")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
