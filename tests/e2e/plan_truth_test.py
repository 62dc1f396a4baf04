#!/usr/bin/env python3
"""The plan against the truth: what tandemctl plan says of a model, and what a running engine holds.

  plan_truth_test.py [--print]

Anonymous plus mapped bytes of the engine, after it has answered. KV pages and workspace are reserved at
load and touched as they are used, and the weights are mapped: what such a mapping has not touched yet
counts as held, since the engine has a right to it. The plan must say the same within 5 % or 8 MiB, and
the peak of the process must not have been above the planned one.
Models that are not in the cache are left out, visibly.
"""
import json
import pathlib
import re
import sys
import unittest

import support

KEYS = {"context_tokens": 1024, "slots": 2}
QWEN = support.CACHE / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
MODELS = [("tiny", support.TINY), ("smollm2", support.SMOLLM), ("qwen0.5b", QWEN)]
TOLERANCE = 8 << 20
PRINT = "--print" in sys.argv
sys.argv[:] = [a for a in sys.argv if a != "--print"]  # the rest is unittest's

HEAD = re.compile(r"^[0-9a-f]+-[0-9a-f]+ (\S+) \S+ \S+ \S+\s*(.*)$")


def mappings(pid):
    """[(path, resident bytes, bytes that it may still touch)] of a process."""
    found = []
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = HEAD.match(line)
        if head:
            found.append({"perms": head[1], "path": head[2]})
            continue
        name, _, value = line.partition(":")
        found[-1][name] = value.split()
    out = []
    for m in found:
        resident, size = (int(m[key][0]) << 10 for key in ("Rss", "Size"))
        reserved = "nr" in m["VmFlags"] and m["perms"].startswith("rw")  # the ledger's memory is mapped so
        unspent = size - resident if reserved or m["path"].endswith(".gguf") else 0
        out.append((m["path"], resident, unspent))
    return out


class PlanTruth(unittest.TestCase):
    def measure(self, name, path):
        with support.Service(models=[(name, path)], model_keys=KEYS) as service:
            pid = service.engine_pid(name)
            for _ in range(3):
                answer = service.chat("Tell me about tea and dragons. " * 20, model=name, max_tokens=24)
                self.assertEqual(answer.status, 200)
            held = mappings(pid)
            peak = support.resident_bytes(pid, "VmHWM")
            plan = json.loads(service.ctl("plan", "--json"))["models"][0]
        return plan, sum(h[1] for h in held), sum(h[2] for h in held), peak

    def test_each_model(self):
        for name, path in MODELS:
            if not path.exists():
                print(f"left out: {path.name} is not in the cache", file=sys.stderr)
                continue
            with self.subTest(name):
                plan, resident, unspent, peak = self.measure(name, path)
                terms = plan["terms"]
                # The state of a sequence exists while it runs, and the cache of masks grows with grammars.
                idle = terms["recurrent_state"] + terms.get("masks", 0)
                truth = resident + unspent + idle
                if PRINT:
                    print(f"{name}: planned {plan['steady']}, held {truth} = {resident} resident + {unspent} reserved + "
                          f"{idle} idle; peak planned {plan['peak']}, seen {peak}\n  {terms}", flush=True)
                self.assertLessEqual(abs(plan["steady"] - truth), max(TOLERANCE, truth * 0.05))
                self.assertLessEqual(peak, plan["peak"])


if __name__ == "__main__":
    support.main()
