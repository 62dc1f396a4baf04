#!/usr/bin/env python3
"""tandemctl budget on a running service: what is shown, refused, changed, kept, taken back.

The numbers are those of this machine, so each case asks the plan first; a hog of memory is not needed,
since a KV budget counts in full whether it is used or not.
"""
import json
import signal
import subprocess
import unittest

import support

MIB = 1 << 20
KEYS = {"context_tokens": 1024, "slots": 2, "kv": "8MiB"}


class BudgetTest(unittest.TestCase):
    KEYS = KEYS
    MEMORY = support.NO_FLOORS

    def setUp(self):
        self.service = support.Service(model_keys=self.KEYS, memory=self.MEMORY)
        self.addCleanup(self.service.close)
        self.service.start()

    def budget(self, *arguments, code=0):
        done = self.service.ctl("budget", *map(str, arguments), "--json", check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return json.loads(done.stdout) if done.stdout else done.stderr

    def values(self, role="optional"):
        for model in self.budget("show")["models"]:
            if model["role"] == role:
                return {name: value["value"] for name, value in model["budget"].items()}
        raise AssertionError(role)

    def plan(self, *arguments):
        return json.loads(self.service.ctl("plan", *map(str, arguments), "--json"))

    def answers(self, model):
        answer = self.service.chat("Say something.", model=model, max_tokens=8)
        self.assertEqual(answer.status, 200, answer)

    def test_set_is_kept_and_undone(self):
        before = self.values()
        self.assertEqual((before["kv"], before["slots"]), (8 * MIB, 2))
        done = self.budget("set", "optional", "--kv", "12MiB", "--slots", 3)
        self.assertEqual((done["verdict"], done["applied"], done["forced"]), ("fits", True, False), done)
        self.assertEqual(done["how"], "live")
        self.assertTrue(done["text"].startswith("optional KV 8 -> 12 MiB: host available "), done["text"])
        self.service.wait_ready()
        self.assertEqual(self.service.status()["tiny2"]["slots"], 3)
        stats = json.loads(self.service.ctl("model", "show", "tiny2", "--json"))["stats"]
        self.assertEqual(stats["slots"], 3)
        page = stats["kv_page_bytes"]
        self.assertEqual(stats["kv_pages_total"], 12 * MIB // page)
        self.answers("tiny2")
        # A restart of the engine, and one of tandemd, keep it.
        self.service.ctl("model", "restart", "tiny2")
        self.assertEqual(self.service.status()["tiny2"]["slots"], 3)
        self.service.daemon.send_signal(signal.SIGTERM)
        self.service.daemon.wait(30)
        self.service.start()
        self.assertEqual(self.values()["kv"], 12 * MIB)
        self.assertEqual(self.service.status()["tiny2"]["slots"], 3)
        shown = json.loads(self.service.ctl("config", "show", "--json", check=False, timeout=30).stdout)
        self.assertEqual(shown["model"]["optional"]["slots"], 2)  # of the file that --config names
        (change,) = json.loads(self.service.ctl("budget", "history", "--json"))
        self.assertEqual(change["change"], "kv 8 MiB -> 12 MiB, slots 2 -> 3")
        self.assertTrue(change["who"])
        undone = self.budget("undo")
        self.assertTrue(undone["applied"], undone)
        self.service.wait_ready()
        self.assertEqual(self.values(), before)
        self.assertEqual(self.service.status()["tiny2"]["slots"], 2)
        self.assertIn("no change to undo", self.budget("undo", code=1))
        self.answers("tiny2")

    def test_live_under_running_answers(self):
        """Growing and shrinking ends no request, changes no token and keeps the process."""
        body = {"model": "tiny2", "messages": [{"role": "user", "content": "Tell me a long story."}],
                "max_tokens": 300, "temperature": 0, "ignore_eos": True}

        def text(stream):
            return "".join(event["choices"][0]["delta"].get("content") or "" for event in stream
                           if event != "[DONE]" and event["choices"])
        alone = text(support.Stream(self.service, body).events())
        pid = self.service.engine_pid("tiny2")
        streams = [support.Stream(self.service, body) for _ in range(3)]  # one of them waits for a slot
        for arguments in (["--kv", "32MiB", "--slots", 5], ["--kv", "9MiB"], ["--slots", 1], ["--batch-tokens", 128],
                          ["--kv", "16MiB", "--slots", 2, "--batch-tokens", 512]):
            done = self.budget("set", "optional", *arguments)
            self.assertEqual((done["applied"], done["how"]), (True, "live"), done)
        for stream in streams:
            self.assertEqual(text(stream.events()), alone)
        self.assertEqual(self.service.engine_pid("tiny2"), pid)
        self.assertEqual(len(self.budget("history")), 5)

    def test_adopted_engines_keep_what_was_set(self):
        self.assertEqual(self.budget("set", "optional", "--slots", 5, "--kv", "16MiB")["how"], "live")
        pid = self.service.engine_pid("tiny2")
        self.service.daemon.kill()
        self.service.daemon.wait(30)
        self.service.start()
        self.assertEqual(self.service.engine_pid("tiny2"), pid)
        stats = json.loads(self.service.ctl("model", "show", "tiny2", "--json"))["stats"]
        self.assertEqual((stats["slots"], self.service.status()["tiny2"]["slots"]), (5, 5))
        self.assertEqual(stats["kv_pages_total"] * stats["kv_page_bytes"] // MIB, 16)
        # What runs says which values are not the file's.
        done = subprocess.run([str(support.BIN / "tandemctl"), "--socket", str(self.service.folder / "run" / "admin.sock"),
                               "config", "show"], capture_output=True, text=True, timeout=60, check=True)
        self.assertIn("# model.optional.slots: set by tandemctl budget; the file says 2\n", done.stdout)
        self.assertEqual([line for line in done.stdout.splitlines() if line.startswith("slots")], ["slots = 2", "slots = 5"])

    def test_plan_of_what_runs(self):
        cold = self.plan("--host-total", "121.7GiB", "--host-available", "115GiB")
        self.assertFalse(cold["running"])
        running = self.plan()
        self.assertTrue(running["running"])
        for role in (0, 1):
            self.assertEqual(cold["models"][role]["terms"]["kv"], running["models"][role]["terms"]["kv"])
            # What it holds already is no right that it still has.
            self.assertLess(running["models"][role]["rights"], cold["models"][role]["rights"])
            self.assertEqual(cold["models"][role]["rights"], cold["models"][role]["steady"])
        self.budget("set", "optional", "--kv", "32MiB")
        self.assertEqual(self.plan()["models"][1]["terms"]["kv"], 32 * MIB)
        self.assertEqual(self.plan("--optional-kv", "16MiB")["models"][1]["terms"]["kv"], 16 * MIB)

    def test_what_does_not_fit_is_refused_as_the_plan_says(self):
        pid = self.service.engine_pid("tiny2")
        plan = self.plan()
        self.assertTrue(plan["running"])
        page, largest = plan["models"][1]["kv_page"], plan["largest_that_fits"]
        self.assertGreater(largest, 0, plan)
        # Far enough on either side of the edge that the machine's own noise does not matter.
        small, large = largest // 2, largest + largest // 2
        for kv, verdict in ((small, "fits"), (large, "refused")):
            judged = self.budget("set", "optional", "--kv", kv, "--dry-run", code=0 if verdict == "fits" else 1)
            self.assertEqual(judged["verdict"], verdict, judged)
            self.assertEqual(self.plan("--optional-kv", kv)["verdict"], verdict)
            self.assertFalse(judged["applied"])
        refused = self.service.ctl("budget", "set", "optional", "--kv", str(large), check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("below the performance floor of", refused.stdout)
        self.assertIn("refused; largest KV that fits: ", refused.stdout)
        self.assertIn("nothing was changed", refused.stderr)
        self.assertEqual(self.values()["kv"], 8 * MIB)
        self.assertEqual(self.service.engine_pid("tiny2"), pid)
        self.assertGreater(page, 0)
        too_small = self.budget("set", "optional", "--kv", 1, "--force", code=1)
        self.assertIn("could not serve", too_small["why"])

    def test_longest_prompt_on_every_interface(self):
        self.budget("set", "optional", "--prompt-tokens-max", 40)
        words = "word " * 60
        message = [{"role": "user", "content": words}]
        cases = [("/v1/chat/completions", {"messages": message, "max_tokens": 4}, "messages"),
                 ("/v1/completions", {"prompt": words, "max_tokens": 4}, "prompt"),
                 ("/v1/messages", {"messages": message, "max_tokens": 4}, "prompt"),  # it has no param
                 ("/v1/responses", {"input": words, "max_output_tokens": 16}, "input")]
        for path, body, field in cases:
            with self.subTest(path):
                answer = self.service.request("POST", path, {**body, "model": "tiny2"})
                self.assertEqual(answer.status, 400, answer)
                said = answer.json()["error"]
                self.assertRegex(said["message"], r"the prompt has \d+ tokens, model tiny2 takes at most 40")
                self.assertIn(field, said.get("param") or said["message"])
                streamed = self.service.request("POST", path, {**body, "model": "tiny2", "stream": True})
                self.assertEqual(streamed.status, 400, streamed)
        self.answers("tiny")  # the neighbour takes it still
        self.assertEqual(self.service.chat(words, model="tiny").status, 200)
        self.budget("set", "optional", "--prompt-tokens-max", "configured")
        self.assertEqual(self.service.chat(words, model="tiny2").status, 200)

    def test_the_file_has_the_last_word_when_it_is_edited(self):
        self.budget("set", "optional", "--slots", 3)
        self.budget("set", "default", "--slots", 4)
        self.service.wait_ready()
        self.service.daemon.send_signal(signal.SIGTERM)
        self.service.daemon.wait(30)
        config = self.service.folder / "config.toml"
        head, optional = config.read_text().split("[model.optional]")
        config.write_text(head + "[model.optional]" + optional.replace("slots = 2", "slots = 1"))
        self.service.start()
        self.assertEqual(self.values("optional")["slots"], 1)
        self.assertEqual(self.values("default")["slots"], 4)
        newest = self.budget("history")[0]
        self.assertEqual((newest["act"], newest["change"]), ("file", "slots 3 -> 1"))

    def test_wrong_wishes(self):
        for arguments, code, said in [
                (["set", "optional"], 2, "nothing to change"), (["set", "nobody", "--slots", 1], 1, "no model"),
                (["set", "optional", "--slots", 0], 2, "allowed are 1 to 1024"),
                (["set", "optional", "--slots", "four"], 2, "is no number"),
                (["set", "optional", "--slots", -1], 2, "allowed are 1 to 1024"),
                (["set", "optional", "--kv", "8XB"], 2, "is no size"), (["undo", "first"], 2, "is no change"),
                (["undo", 99], 1, "there is no change 99"), (["undo"], 1, "no change to undo")]:
            with self.subTest(arguments):
                self.assertIn(said, self.budget(*arguments, code=code))
        self.assertEqual(self.budget("history"), [])
        same = self.budget("set", "optional", "--kv", "8MiB", "--slots", 2)
        self.assertTrue(same["applied"])  # pinned: the file may change now without changing it
        self.assertEqual(self.budget("show")["models"][1]["budget"]["slots"]["from"], "override")
        self.assertFalse(self.budget("set", "optional", "--kv", "8MiB")["applied"])


class ForceTest(unittest.TestCase):
    """More than fits, on an engine that takes memory only as it is used: nothing here is ever touched."""
    setUp, budget, values, plan = (getattr(BudgetTest, name) for name in ("setUp", "budget", "values", "plan"))
    KEYS = {**KEYS, "kv": "1GiB", "commit": False}
    MEMORY = support.NO_FLOORS.replace('floor = "16MiB"', 'floor = "2GiB"')  # a change may go below it by force, not below nothing

    def test_force_is_recorded(self):
        largest, pid = self.plan()["largest_that_fits"], self.service.engine_pid("tiny2")
        kv = largest + 512 * MIB
        self.budget("set", "optional", "--kv", kv, code=1)
        forced = self.budget("set", "optional", "--kv", kv, "--force")
        self.assertEqual((forced["applied"], forced["forced"], forced["verdict"]), (True, True, "refused"))
        self.assertTrue(self.budget("history")[0]["forced"])
        # Memory is given back without force, although the host is below its floor by plan.
        self.assertTrue(self.budget("set", "optional", "--kv", kv - 64 * MIB)["applied"])
        self.assertTrue(self.budget("undo", 1)["applied"])
        self.assertEqual(self.values()["kv"], 1024 * MIB)
        self.assertEqual(self.service.engine_pid("tiny2"), pid)


if __name__ == "__main__":
    support.main()
