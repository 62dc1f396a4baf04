#!/usr/bin/env python3
"""Runs the cases of a page: page_cases.py TANDEM_CASES PAGE.md; every rule from R1 to R32 must have a section with one."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

RULES = [f"R{number}" for number in range(1, 33)]


def main(runner, page):
    cases, missing = [], []
    sections = dict(re.findall(r"^## (R\d+): (.*?)(?=^## |\Z)", pathlib.Path(page).read_text("utf-8"), re.M | re.S))
    for rule in RULES:
        found = re.findall(r"^```json case\n(.*?)^```$", sections.get(rule, ""), re.M | re.S)
        cases += [json.loads(text) for text in found]
        if not found or f'off = ["{rule}"]' not in sections[rule]:
            missing.append(rule)
    if missing:
        print("no example, or no switch:", *missing)
        return 1
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as lines:
        lines.write("".join(json.dumps(case) + "\n" for case in cases))
        lines.flush()
        return subprocess.run([runner, lines.name], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
