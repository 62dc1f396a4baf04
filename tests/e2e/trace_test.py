#!/usr/bin/env python3
"""tests/bench/cotenancy --trace takes what it says it takes, and tells when a bound is broken."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import support

BENCH = support.ROOT / "tests" / "bench"
sys.path.insert(0, str(BENCH))
import cotenancy_trace  # noqa: E402: it lies beside, not in the path


def replay(trace, *arguments):
    """(exit code, report or None, what was printed) of a run on the tiny pair."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        done = subprocess.run([str(BENCH / "cotenancy"), "--default", str(support.TINY), "--optional", str(support.TINY),
                               "--trace", str(trace), "--json", file.name, *arguments], capture_output=True, text=True,
                              timeout=200, check=False)
        text = pathlib.Path(file.name).read_text()
    return done.returncode, json.loads(text) if text else None, done.stdout + done.stderr


class ReadTest(unittest.TestCase):
    def read(self, text):
        requests, odd = cotenancy_trace.read_trace(text)
        return [(one.at, one.model, one.key, one.prompt_tokens, one.answer_tokens) for one in requests], odd

    def test_all_forms_say_the_same(self):
        want = [(0.0, "default", "a", 5, 7), (0.5, "optional", "", 9, 1)]
        lines = ('# a comment\n\n{"time": 3.5, "model": "optional", "prompt_tokens": 9, "answer_tokens": 1}\n'
                 '{"time": 3, "model": "default", "key": "a", "prompt_tokens": 5, "answer_tokens": 7}\n')
        self.assertEqual(self.read(lines), (want, {"out of order, sorted": 1}))
        array = "[" + ",".join(lines.splitlines()[2:]) + "]"
        self.assertEqual(self.read(array)[0], want)
        csv = "# a comment\ntime,model,key,prompt_tokens,answer_tokens\n\n3.5, optional, , 9, 1\n3, default, a, 5, 7\n"
        self.assertEqual(self.read(csv)[0], want)
        self.assertEqual(self.read("\ufeff" + lines)[0], want)

    def test_what_holds_no_request_is_an_error(self):
        for text in ("", "# nothing\n", "[]", "[1, 2", "{}", "\x00\x01\x02", "time,model\n1,default\n",
                     '{"time": "Infinity", "prompt_tokens": 1, "answer_tokens": 1}', '{"time": NaN}'):
            with self.subTest(text), self.assertRaises(cotenancy_trace.TraceError):
                cotenancy_trace.read_trace(text)


class ReplayTest(unittest.TestCase):
    def test_an_odd_trace_is_served_where_it_can_be(self):
        code, report, text = replay(BENCH / "traces" / "odd.jsonl")
        self.assertEqual(code, 0, text)
        self.assertEqual(report["outcomes"], {"served": 7, "rejected": 3}, text)
        self.assertEqual(sum(report["odd"].values()), 9, report["odd"])
        self.assertLess(report["seconds"], 60)  # the pause of a quarter of an hour is cut short

    def test_a_burst_is_served_or_refused(self):
        code, report, text = replay(BENCH / "traces" / "burst.jsonl")
        self.assertEqual(code, 0, text)
        self.assertEqual(report["outcomes"].get("served", 0) + report["outcomes"].get("refused", 0), 200, text)
        self.assertGreater(report["outcomes"]["refused"], 0)

    def test_what_has_not_ended_in_time_is_broken(self):
        code, report, text = replay(BENCH / "traces" / "keys.csv", "--trace-seconds", "1")
        self.assertEqual(code, 1, text)
        self.assertGreater(report["outcomes"]["open"], 0)

    def test_no_trace_is_exit_2_and_nothing_is_started(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write("# nothing\n")
            file.flush()
            code, report, text = replay(file.name)
            self.assertEqual((code, report), (2, None), text)
        code, _, text = replay("/nowhere/trace.jsonl")
        self.assertEqual(code, 2, text)


if __name__ == "__main__":
    unittest.main()
