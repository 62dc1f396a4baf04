#!/usr/bin/env python3
"""The configurations of packaging/examples/ are what their page says: no problem in them, and a plan that fits a
GB10. Model files are headers without data: the generator's big shapes where it lies beside the repository, else
made-up ones of the same kind.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import plan_test
import support

HOST = ["--host-total", "121.7GiB", "--host-available", "115GiB"]
EXAMPLES = sorted((support.ROOT / "packaging" / "examples").glob("*.toml"))


def make_model(path, kind):
    script = support.ROOT.parent / "shared" / "models" / "make_shape.py"
    python = support.os.environ.get("TANDEM_PEER_PYTHON") or sys.executable
    if script.exists():
        done = subprocess.run([python, str(script), kind, str(path), "full", "--sparse"], capture_output=True, timeout=60,
                              check=False)
        if done.returncode == 0:
            return
    {"gemma4-26b": plan_test.gpt_oss, "qwen35-27b": plan_test.hybrid_experts}[kind](path)


class Examples(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tandem-examples-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        make_model(self.folder / "gemma-4-26b-q4_k_m.gguf", "gemma4-26b")
        make_model(self.folder / "qwen-27b-q4_k_m.gguf", "qwen35-27b")

    def run_ctl(self, *arguments):
        return subprocess.run([str(support.BIN / "tandemctl"), *map(str, arguments)], capture_output=True,
                              stdin=subprocess.DEVNULL, text=True, timeout=60, check=False)

    def here(self, example, *changes):
        text = example.read_text().replace("/var/lib/tandem/models/", f"{self.folder}/")
        for old, new in changes:
            self.assertIn(old, text)
            text = text.replace(old, new)
        path = self.folder / example.name
        path.write_text(text.replace('run_dir = "/run/tandem"', f'run_dir = "{self.folder}/run"'))
        return path

    def plan(self, path):
        done = self.run_ctl("plan", "--config", path, *HOST, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_they_are_there(self):
        self.assertEqual([path.name for path in EXAMPLES],
                         ["gb10-llama-server.toml", "gb10-vllm.toml", "llama-server-and-vllm.toml"])

    def test_no_problems_and_a_plan_that_fits(self):
        for example in EXAMPLES:
            with self.subTest(example.name):
                done = self.run_ctl("config", "check", example)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                plan = self.plan(self.here(example))
                self.assertEqual(plan["verdict"], "fits", plan["reasons"])
                for model in plan["models"]:
                    self.assertGreater(model["terms"]["weights"], 5 << 30)
                    self.assertGreater(model["terms"]["kv"], 1 << 30)
                    self.assertLessEqual(model["terms"]["kv"], 20 << 30)
                # A text for people as well.
                shown = self.run_ctl("plan", "--config", self.here(example), *HOST)
                self.assertIn("fits; largest optional KV that fits", shown.stdout)

    def test_what_does_not_fit_is_refused_with_the_numbers(self):
        example = support.ROOT / "packaging" / "examples" / "gb10-vllm.toml"
        plan = self.plan(self.here(example, ('kv = "8GiB"', 'kv = "60GiB"')))
        self.assertEqual(plan["verdict"], "refused")
        self.assertGreater(plan["largest_that_fits"], 8 << 30)
        fits = self.plan(self.here(example, ('kv = "8GiB"', f'kv = "{plan["largest_that_fits"] >> 20}MiB"')))
        self.assertEqual(fits["verdict"], "fits")

    def test_the_page_shows_configurations_without_problems(self):
        page = (support.ROOT / "docs" / "engines.md").read_text()
        blocks = re.findall(r"```toml\n(.*?)```", page, re.S)
        self.assertEqual(len(blocks), 3)
        for number, block in enumerate(blocks):
            with self.subTest(number):
                text = block
                if "[model.default]" not in text:
                    text += '\n[model.default]\nname = "other"\nfile = "other.gguf"\n'
                path = self.folder / f"block{number}.toml"
                path.write_text(text)
                done = self.run_ctl("config", "check", path)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_conflict_names_both_sides(self):
        example = support.ROOT / "packaging" / "examples" / "gb10-llama-server.toml"
        done = self.run_ctl("config", "check", self.here(example, ('"--flash-attn", "on"', '"--parallel", "9"')))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--parallel 9 contradicts slots = 4", done.stdout + done.stderr)


if __name__ == "__main__":
    support.main()
