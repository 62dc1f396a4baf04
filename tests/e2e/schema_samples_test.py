#!/usr/bin/env python3
"""Random texts that the compiled schemas accept, judged by Python's jsonschema: each is JSON and valid.

  schema_samples_test.py [COUNT [SEED]]
"""
import json
import os
import pathlib
import subprocess
import sys
import unittest

try:
    import jsonschema
except ImportError:
    print("skipped: jsonschema is not installed (tools/python_env test makes the environment)")
    sys.exit(77)

SOURCE = pathlib.Path(os.environ.get("TANDEM_SOURCE_DIR", "."))
CASES = SOURCE / "tests/unit/engine/schema_cases.jsonl"
TOOL = pathlib.Path(os.environ.get("TANDEM_BIN_DIR", "build/release/bin")) / "schema_samples"
COUNT, SEED = 40, 1


class SchemaSamplesTest(unittest.TestCase):
    def test_samples_are_valid(self):
        cases = [json.loads(line) for line in CASES.read_text("utf-8").splitlines()]
        output = subprocess.run([TOOL, CASES, str(COUNT), str(SEED)], check=True, capture_output=True).stdout
        lines = output.decode("utf-8").rstrip("\n").split("\n")
        self.assertEqual(len(cases), len(lines))
        for case, line in zip(cases, lines):
            answer = json.loads(line)
            with self.subTest(case["name"]):
                self.assertNotIn("error", answer)
                self.check_texts(case, answer["texts"])

    def check_texts(self, case, texts):
        # The checker of all drafts at once still has draft 3's idea of a time, so the draft's own counts too.
        draft = jsonschema.Draft202012Validator
        checkers = [draft.FORMAT_CHECKER]
        if "time" not in str(case["schema"]):
            checkers.append(jsonschema.FormatChecker())
        for validator in [draft(case["schema"], format_checker=checker) for checker in checkers]:
            for text in texts:
                errors = [error.message for error in validator.iter_errors(json.loads(text))]
                self.assertEqual([], errors[:1], f"{case['name']}: {text!r}")
        # The cases themselves: what they call accepted must be valid.
        for text in case["accept"]:
            self.assertTrue(validator.is_valid(json.loads(text)), f"{case['name']}: {text!r}")


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    COUNT, SEED = (numbers + [COUNT, SEED][len(numbers):])[:2]
    unittest.main(argv=sys.argv[:1])
