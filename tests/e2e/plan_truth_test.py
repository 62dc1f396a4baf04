#!/usr/bin/env python3
"""The plan against the truth: what tandemctl plan says of a model, and what a running engine holds.

  plan_truth_test.py [--print]

Anonymous plus mapped bytes of the engine, after it has answered. With `commit` everything that was reserved is
resident, and with `load = "direct"` the weights are: resident bytes are then the truth as they stand. Only the cache
of token masks fills up with grammars; what is missing of it is counted. Mapped weights count as held as a whole, since the
engine has a right to their pages. The plan must say the same within 5 % or 8 MiB, steady and at the peak, and the process must
never have been above the planned peak. One case runs without `commit`: what the ledger's mappings have not touched is added.
Models that are not in the cache are left out, visibly.
"""
import json
import pathlib
import re
import sys
import unittest

import support

KEYS = {"context_tokens": 1024, "slots": 2}
QWEN = "qwen2.5-coder-{}-instruct-q4_k_m.gguf"
MODELS = [("tiny", support.TINY), ("smollm2", support.SMOLLM), ("qwen0.5b", support.CACHE / QWEN.format("0.5b")),
          ("qwen1.5b", support.CACHE / QWEN.format("1.5b"))]
TOLERANCE = 8 << 20
PRINT = "--print" in sys.argv
sys.argv[:] = [a for a in sys.argv if a != "--print"]  # the rest is unittest's

HEAD = re.compile(r"^[0-9a-f]+-[0-9a-f]+ (\S+) \S+ \S+ \S+\s*(.*)$")


def mappings(pid):
    """[(path, resident bytes, bytes of it that were reserved and not touched)] of a process."""
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
        out.append((m["path"], resident, size - resident if reserved else 0))
    return out


class PlanTruth(unittest.TestCase):
    def measure(self, name, path, load, commit):
        keys = {**KEYS, "load": load, "commit": commit}
        with support.Service(models=[(name, path)], model_keys=keys) as service:
            pid = service.engine_pid(name)
            idle = sum(m[1] for m in mappings(pid))
            for _ in range(3):
                answer = service.chat("Tell me about tea and dragons. " * 20, model=name, max_tokens=24)
                self.assertEqual(answer.status, 200)
            held = mappings(pid)
            peak = support.resident_bytes(pid, "VmHWM")
            plan = json.loads(service.ctl("plan", "--json"))["models"][0]
        return plan, held, idle, peak

    def check(self, name, path, load, commit):
        plan, held, idle, peak = self.measure(name, path, load, commit)
        terms = plan["terms"]
        resident = sum(m[1] for m in held)
        files = sum(m[1] for m in held if m[0].endswith(".gguf"))
        mapped = path.stat().st_size - files if load == "mapped" else 0
        to_come = terms.get("masks", 0)
        if not commit:  # and the state of a sequence exists while it runs
            to_come += sum(m[2] for m in held) + terms["recurrent_state"]
        truth = resident + mapped + to_come
        if PRINT:
            print(f"{name} {load}{'' if commit else ', not committed'}: planned {plan['steady']}, held {truth} = {resident} "
                  f"resident + {mapped} mapped + {to_come} to come; idle {idle}; peak planned {plan['peak']}, seen {peak}\n"
                  f"  {terms}", flush=True)
        slack = max(TOLERANCE, truth * 0.05)
        self.assertLessEqual(abs(plan["steady"] - truth), slack)
        self.assertLessEqual(abs(plan["peak"] - (peak + mapped + to_come)), slack)
        self.assertLessEqual(peak, plan["peak"])
        self.assertEqual(files > 0, load == "mapped")  # a direct load maps nothing of the file
        if commit and load == "direct":  # nothing but masks is taken after the load
            self.assertLessEqual(resident - idle, TOLERANCE)

    def test_each_model(self):
        for name, path in MODELS:
            if not path.exists():
                print(f"left out: {path.name} is not in the cache", file=sys.stderr)
                continue
            for load in ("direct", "mapped"):
                with self.subTest(name, load=load):
                    self.check(name, path, load, commit=True)

    def test_without_commit(self):
        for name, path in MODELS[:2]:
            if path.exists():
                with self.subTest(name):
                    self.check(name, path, "direct", commit=False)


if __name__ == "__main__":
    support.main()
