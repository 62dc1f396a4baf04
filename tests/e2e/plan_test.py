#!/usr/bin/env python3
"""tandemctl plan on files whose data is absent, without a running service.

The header of each model is true, the tensors are a hole: the plan reads metadata only. Files of families
that the engine cannot run are planned too. Where the project's generator of big shapes lies beside the
repository (../shared/models/make_shape.py, needs numpy), its files are planned as well.
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

import support

GIB = 1 << 30
HOST = ["--host-total", "121.7GiB", "--host-available", "115GiB"]
Q4_0 = (2, 32, 18)
F32 = (0, 1, 4)


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def value_bytes(value):
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, list):
        return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)
    return struct.pack("<II", 4, value)


def write_sparse(path, architecture, keys, tensors):
    """A GGUF file without data; returns the bytes of its tensors."""
    pairs = {"general.architecture": architecture, "tokenizer.ggml.model": "no_vocab"}
    pairs.update({key if key.startswith("split.") else f"{architecture}.{key}": value for key, value in keys.items()})
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    header += b"".join(text(key) + value_bytes(value) for key, value in pairs.items())
    offset = total = 0
    for name, dims, (number, block, size) in tensors:
        count = 1
        for dim in dims:
            count *= dim
        length = count // block * size
        header += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, number, offset)
        offset += (length + 31) // 32 * 32
        total += length
    header += b"\0" * (-len(header) % 32)
    with open(path, "wb") as file:
        file.write(header)
        file.truncate(len(header) + offset)
    return total


def gpt_oss(path, **changed):
    keys = {"block_count": 24, "context_length": 131072, "embedding_length": 2880, "feed_forward_length": 2880,
            "attention.head_count": 64, "attention.head_count_kv": 8, "attention.key_length": 64,
            "attention.value_length": 64, "attention.sliding_window": 128, "expert_count": 32, "expert_used_count": 4,
            "expert_feed_forward_length": 2880, **changed}
    experts = [(f"blk.{b}.ffn_{part}_exps.weight", (2880, 2880, 32), Q4_0) for b in range(24)
               for part in ("gate", "up", "down")]
    return write_sparse(path, "gpt-oss", keys, [("token_embd.weight", (2880, 201088), Q4_0)] + experts)


def hybrid_experts(path, **changed):
    keys = {"block_count": 41, "nextn_predict_layers": 1, "context_length": 262144, "embedding_length": 2048,
            "attention.head_count": 16, "attention.head_count_kv": 2, "attention.key_length": 256,
            "attention.value_length": 256, "full_attention_interval": 4, "ssm.conv_kernel": 4, "ssm.state_size": 128,
            "ssm.group_count": 16, "ssm.time_step_rank": 32, "ssm.inner_size": 4096, "expert_count": 256,
            "expert_used_count": 8, "expert_feed_forward_length": 512, **changed}
    experts = [(f"blk.{b}.ffn_up_exps.weight", (2048, 512, 256), Q4_0) for b in range(41)]
    return write_sparse(path, "qwen35moe", keys, [("token_embd.weight", (2048, 248320), Q4_0)] + experts)


class Plan(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tandem-plan-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_plan(self, *arguments):
        return subprocess.run([str(support.BIN / "tandemctl"), "plan", *map(str, arguments)], capture_output=True,
                              stdin=subprocess.DEVNULL, text=True, timeout=60, check=False)

    def plan(self, *arguments):
        done = self.run_plan(*arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def check_inverse(self, arguments, plan):
        """The largest KV fits, one page more does not, all else unchanged."""
        largest, page = plan["largest_that_fits"], plan["models"][-1]["kv_page"]
        self.assertEqual(self.plan(*arguments, "--optional-kv", largest)["verdict"], "fits")
        more = self.plan(*arguments, "--optional-kv", largest + page)
        self.assertEqual(more["verdict"], "refused")
        self.assertEqual(more["largest_that_fits"], largest)

    def test_families_that_the_engine_cannot_run(self):
        oss, moe = self.folder / "oss.gguf", self.folder / "moe.gguf"
        oss_bytes, moe_bytes = gpt_oss(oss), hybrid_experts(moe)
        arguments = ["--default", oss, "--optional", moe, "--default-kv", "24GiB", "--default-slots", 8, *HOST]
        plan = self.plan(*arguments, "--optional-kv", "8GiB")
        self.assertEqual(plan["verdict"], "fits", plan)
        default, optional = plan["models"]
        self.assertEqual((default["role"], optional["role"]), ("default", "optional"))
        self.assertFalse(default["engine_runs_it"])
        self.assertEqual(default["terms"]["weights"], oss_bytes)
        # Rings: 128 + 512 - 1 tokens are 640 in whole pages, 24,576 bytes each, 8 slots.
        self.assertEqual(default["terms"]["kv_sliding"], 640 * 24576 * 8)
        self.assertLessEqual(24 * GIB - default["terms"]["kv"], 24576 * 32)
        self.assertEqual(optional["terms"]["weights"] + optional["terms"]["draft_head"], moe_bytes)
        self.assertEqual(optional["terms"]["recurrent_state"], 4 * 30 * (3 * 8192 * 4 + 32 * 128 * 128 * 4))
        self.assertLess(8 * GIB - optional["terms"]["kv"], 20480 * 32)
        self.assertEqual(plan["host"]["floor"], 24 * GIB)
        self.assertEqual(plan["host"]["available_after"],
                         115 * GIB - sum(model["steady"] for model in plan["models"]))
        for model in plan["models"]:
            self.assertLess(model["terms"]["load_peak"], model["terms"]["weights"] * 1.05 + (1 << 26))
        self.check_inverse(arguments, plan)

    def test_refusal_says_what_would_fit(self):
        oss = self.folder / "oss.gguf"
        gpt_oss(oss)
        arguments = ["--default", oss, "--optional", oss, "--default-kv", "24GiB", *HOST]
        plan = self.plan(*arguments, "--optional-kv", "60GiB")
        self.assertEqual(plan["verdict"], "refused")
        self.assertIn("below the performance floor of 24 GiB", plan["reasons"][0])
        self.check_inverse(arguments, plan)
        said = self.run_plan(*arguments, "--optional-kv", "60GiB").stdout
        self.assertIn("refused: ", said)
        self.assertIn("largest optional KV that fits: ", said)
        small = self.plan("--default", oss, "--optional", oss, "--host-total", "24GiB", "--host-available", "20GiB")
        self.assertEqual((small["verdict"], small["largest_that_fits"]), ("refused", 0))

    def test_every_combination_of_flags(self):
        """One plan for each; more memory never fits worse, and the largest KV is exact each time."""
        oss, moe = self.folder / "oss.gguf", self.folder / "moe.gguf"
        gpt_oss(oss), hybrid_experts(moe)
        for models in (["--default", oss], ["--optional", moe], ["--default", moe, "--optional", oss]):
            roles = [flag[2:] for flag in models[::2]]
            for kv in (None, "0", "1.5GiB", "700MiB"):
                for slots in (None, "1", "1024"):
                    extra = [part for role in roles for part in
                             ([f"--{role}-kv", kv] if kv else []) + ([f"--{role}-slots", slots] if slots else [])]
                    with self.subTest(models=models, kv=kv, slots=slots):
                        plan = self.plan(*models, *extra, "--host-total", "64.5GiB", "--host-available", "60.25GiB")
                        self.assertEqual([model["role"] for model in plan["models"]], roles)
                        self.assertEqual(plan["verdict"] == "fits", not plan["reasons"])
                        self.assertEqual(plan["host"]["total"], 64.5 * GIB)
                        self.assertEqual(plan["host"]["available"], 60.25 * GIB)
                        for model in plan["models"]:
                            for term in ("weights", "kv", "recurrent_state", "workspace", "load_peak",
                                         "neighbour_unspent_rights", "performance_floor"):
                                self.assertGreaterEqual(model["terms"][term], 0)
                            self.assertEqual(model["terms"]["performance_floor"], plan["host"]["floor"])
                        worst = plan["host"]["available"] - sum(model["rights"] for model in plan["models"])
                        self.assertEqual(plan["host"]["available_after"], worst)
        # The exact inverse where the default model is planned alone, too.
        arguments = ["--default", oss, "--host-total", "64.5GiB", "--host-available", "60.25GiB"]
        plan = self.plan(*arguments)
        self.assertEqual(plan["largest_that_fits_role"], "default")
        largest, page = plan["largest_that_fits"], plan["models"][0]["kv_page"]
        self.assertEqual(self.plan(*arguments, "--default-kv", largest)["verdict"], "fits")
        self.assertEqual(self.plan(*arguments, "--default-kv", largest + page)["verdict"], "refused")

    def test_small_hosts_are_refused_not_errors(self):
        oss = self.folder / "oss.gguf"
        gpt_oss(oss)
        for total, available in (("0.5GiB", "0"), ("2GiB", "2GiB"), ("8GiB", "1GiB"), ("1", "1")):
            plan = self.plan("--default", oss, "--host-total", total, "--host-available", available)
            self.assertEqual((plan["verdict"], plan["largest_that_fits"]), ("refused", 0), (total, plan))

    def test_a_download_that_has_just_begun_is_planned(self):
        """The header is enough: without the data the terms are the same, up to the last byte."""
        for name, write, role in (("oss", gpt_oss, "--default"), ("moe", hybrid_experts, "--optional")):
            with self.subTest(name):
                whole, begun = self.folder / f"{name}.gguf", self.folder / f"{name}-begun.gguf"
                write(whole)
                with open(whole, "rb") as file:
                    head = file.read(1 << 20).rstrip(b"\0")
                begun.write_bytes(head + b"\0" * 64)
                plans = [self.plan(role, path, *HOST)["models"][0] for path in (whole, begun)]
                for term, size in plans[0]["terms"].items():
                    self.assertLess(abs(size - plans[1]["terms"][term]), 4096, term)
                self.assertEqual(plans[0]["terms"]["weights"], plans[1]["terms"]["weights"])
                self.assertIn("absent", plans[1]["engine_why"])
        # The header itself must be whole.
        begun.write_bytes(head[:-100])
        self.assertEqual(self.run_plan("--optional", begun, *HOST).returncode, 1)

    def test_split_files_are_one_model(self):
        whole = self.folder / "whole.gguf"
        total = gpt_oss(whole)
        first, second = (self.folder / f"oss-0000{part}-of-00002.gguf" for part in (1, 2))
        gpt_oss(first, **{"split.no": 0, "split.count": 2, "split.tensors.count": 74})
        write_sparse(second, "gpt-oss", {"split.no": 1, "split.count": 2, "split.tensors.count": 74}, [("output.weight", (2880, 201088), Q4_0)])
        more = 2880 * 201088 // 32 * 18
        plan = self.plan("--default", first, *HOST)
        self.assertEqual(plan["models"][0]["terms"]["weights"], total + more)
        second.unlink()
        done = self.run_plan("--default", first, *HOST)
        self.assertEqual(done.returncode, 1)
        self.assertIn("00002-of-00002", done.stderr)

    def test_hostile_metadata_is_an_error(self):
        for name, change in [("heads", {"attention.head_count_kv": 0}), ("blocks", {"block_count": 0xFFFFFFFF}),
                             ("length", {"attention.key_length": 0xFFFFFFFF}), ("window", {"attention.sliding_window": 0}),
                             ("list", {"attention.head_count_kv": [8, 8]}), ("text", {"context_length": "long"})]:
            with self.subTest(name):
                path = self.folder / "bad.gguf"
                gpt_oss(path, **change)
                done = self.run_plan("--default", path, *HOST, "--json")
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn("keys." + next(iter(change)), done.stderr)
        write_sparse(path, "mamba", {"block_count": 1}, [("token_embd.weight", (32, 32), F32)])
        self.assertIn("mamba", self.run_plan("--default", path, *HOST).stderr)

    def test_wrong_usage(self):
        oss = self.folder / "oss.gguf"
        gpt_oss(oss)
        for arguments in [["--optional", oss, "--default-kv", "1GiB"], ["--default", oss, "--default-kv", "1XB"],
                          ["--default", oss, "--default-slots", "0"], ["--default", oss, "--default-slots", "-1"],
                          ["--default", oss, "--default-slots", "1025"], ["--default", oss, "--default-slots", "1.5"],
                          ["--default", oss, "--default-slots", "99999999999999999999"], ["--default", oss, "--default-kv", "-1"],
                          ["--default", oss, "--host-total", "0", "--host-available", "0"],
                          ["--default", oss, "--host-total", "64GiB"],
                          ["--default", oss, "--host-total", "64GiB", "--host-available", "65GiB"], ["oss"]]:
            self.assertEqual(self.run_plan(*arguments).returncode, 2, arguments)
        self.assertEqual(self.run_plan("--default", self.folder / "missing.gguf").returncode, 1)


class BigShapes(unittest.TestCase):
    """The 26B and the 27B of the worked example in docs/memory.md."""

    def shape(self, folder, kind):
        script = support.ROOT.parent / "shared" / "models" / "make_shape.py"
        path = pathlib.Path(folder) / f"{kind}.gguf"
        if not script.exists():
            self.skipTest(f"{script.name} is not beside the repository")
        done = subprocess.run([support.os.environ.get("TANDEM_PEER_PYTHON") or sys.executable, str(script), kind, str(path),
                               "full", "--sparse"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.skipTest(f"{script.name} does not run here: {done.stderr.strip().splitlines()[-1]}")
        return path, json.loads(done.stdout)["tensor_bytes"]

    def test_worked_example(self):
        with tempfile.TemporaryDirectory(prefix="tandem-plan-") as folder:
            gemma, gemma_bytes = self.shape(folder, "gemma4-26b")
            qwen, qwen_bytes = self.shape(folder, "qwen35-27b")
            arguments = ["--default", gemma, "--optional", qwen, "--default-kv", "24GiB", "--default-slots", 8,
                         "--default-context", 65536, "--optional-context", 65536]

            def plan(kv, available):
                return Plan.plan(self, *arguments, "--optional-kv", kv, "--host-total", "121.7GiB", "--host-available",
                                 available)
            first = plan("8GiB", "115GiB")
            default, optional = (model["terms"] for model in first["models"])
            self.assertEqual((default["weights"], optional["weights"]), (gemma_bytes, qwen_bytes))
            self.assertEqual((gemma_bytes, qwen_bytes), (14423538808, 15465875456))
            self.assertEqual(default["kv_sliding"], 1536 * 204800 * 8)
            self.assertEqual(default["kv_full"], 35481 * 655360)
            self.assertEqual(optional["kv"], 8 * GIB)
            self.assertEqual(optional["recurrent_state"], 4 * 156893184)
            # The field report's host: 30 GiB left with 8 GiB of optional KV.
            available = 115 * GIB - first["host"]["available_after"] + 30 * GIB
            self.assertEqual(plan("8GiB", available)["verdict"], "fits")
            refused = plan("24GiB", available)
            self.assertEqual(refused["verdict"], "refused")
            self.assertEqual(refused["host"]["available_after"], 14 * GIB)
            self.assertEqual(refused["largest_that_fits"], 14 * GIB)
            said = Plan.run_plan(self, *arguments, "--optional-kv", "24GiB", "--host-total", "121.7GiB",
                                 "--host-available", available).stdout
            self.assertIn("below the performance floor of 24 GiB: refused; largest KV that fits: 14 GiB", said)

    run_plan = Plan.run_plan


if __name__ == "__main__":
    support.main()
