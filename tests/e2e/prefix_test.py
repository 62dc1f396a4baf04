#!/usr/bin/env python3
"""Prompts that begin like earlier ones are not computed again: seen in `usage`, in the metrics, in nobody else's answers.

The tiny hybrid keeps recurrent states, SmolLM2 (when it is there) only keys and values.
"""
import unittest

import support
from support import SMOLLM, TINY, Service, in_threads

STORY = " ".join(f"On day {n} Nora walked along the river and counted {n * 7 % 23} deer near bridge {n % 9}."
                 for n in range(60))


def cached(answer):
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def prompt_tokens(answer):
    return answer.json()["usage"]["prompt_tokens"]


class Prefix(unittest.TestCase):
    """One service for all; every test has its own texts."""

    @classmethod
    def setUpClass(cls):
        cls.models = [("tiny", TINY)] + ([("smol", SMOLLM)] if SMOLLM.exists() else [])
        if len(cls.models) == 1:
            cls.models.append(("tiny2", TINY))
        cls.service = Service(cls.models, model_keys={"slots": 8})
        cls.service.__enter__()
        cls.addClassCleanup(cls.service.close)

    def chat(self, model, messages, key=True, **extra):
        body = {"model": model, "messages": messages, "max_tokens": 24, "temperature": 0,
                "chat_template_kwargs": {"enable_thinking": False}, **extra}
        answer = self.service.request("POST", "/v1/chat/completions", body, key=key)
        self.assertEqual(answer.status, 200, answer)
        return answer

    def text(self, answer):
        return answer.json()["choices"][0]["message"]["content"]

    def test_second_turn_starts_where_the_first_ended(self):
        for name, _ in self.models:
            with self.subTest(name):
                first = [{"role": "user", "content": f"Turns of {name}. {STORY} How many deer?"}]
                one = self.chat(name, first)
                self.assertEqual(cached(one), 0)
                second = first + [{"role": "assistant", "content": self.text(one) or "None."},
                                  {"role": "user", "content": "And how many bridges?"}]
                two = self.chat(name, second)
                # Bounded by the page of the first prompt's end and by what the template rewrites.
                self.assertGreaterEqual(cached(two), prompt_tokens(one) - 64)
                again = self.chat(name, second)
                self.assertGreaterEqual(cached(again), cached(two))
                self.assertEqual(self.text(again), self.text(two))

    def test_a_changed_end_reuses_the_beginning(self):
        for name, _ in self.models:
            with self.subTest(name):
                text = f"Ends of {name}. {STORY} "
                one = self.chat(name, [{"role": "user", "content": text + "The deer were " + "counted twice " * 20}])
                two = self.chat(name, [{"role": "user", "content": text + "The bridges were " + "painted red " * 20}])
                self.assertGreaterEqual(cached(two), 0.95 * (prompt_tokens(one) - 150 - 256))

    def test_every_interface_says_so(self):
        text = f"Interfaces. {STORY}"
        ask = [{"role": "user", "content": text}]
        self.chat("tiny", ask)
        anthropic = self.service.request("POST", "/v1/messages", {"model": "tiny", "messages": ask, "max_tokens": 8})
        self.assertGreater(anthropic.json()["usage"]["cache_read_input_tokens"], 500, anthropic)
        responses = self.service.request("POST", "/v1/responses", {"model": "tiny", "input": text,
                                                                   "max_output_tokens": 16, "store": False})
        self.assertGreater(responses.json()["usage"]["input_tokens_details"]["cached_tokens"], 500, responses)
        body = {"model": "tiny", "prompt": text, "max_tokens": 4, "temperature": 0}
        plain = [self.service.request("POST", "/v1/completions", body) for _ in range(2)]
        self.assertEqual(cached(plain[0]), 0)
        self.assertGreater(cached(plain[1]), 500)
        self.assertEqual(plain[0].json()["choices"][0]["text"], plain[1].json()["choices"][0]["text"])

    def test_keys_cannot_probe_each_other(self):
        ask = [{"role": "user", "content": f"A secret between two. {STORY}"}]
        self.chat("tiny", ask)
        other = self.service.admin_key()
        self.assertEqual(cached(self.chat("tiny", ask, key=other)), 0)
        self.assertGreater(cached(self.chat("tiny", ask, key=other)), 500)

    def test_choices_share_one_prefill(self):
        before = self.service.metrics()
        name = 'vllm:prefix_cache_hits_total{model_name="tiny"}'
        answer = self.chat("tiny", [{"role": "user", "content": f"Choices. {STORY}"}], n=4, temperature=1, seed=1)
        self.assertEqual(cached(answer), 0)
        found = self.service.metrics()[name] - before.get(name, 0)
        self.assertGreaterEqual(found, 3 * (prompt_tokens(answer) - 160))

    def test_a_system_prompt_of_many_is_computed_once(self):
        system = {"role": "system", "content": f"You count deer. {STORY}"}
        done = in_threads(12, lambda i: self.chat("tiny", [system, {"role": "user", "content": f"I am guest {i}."}]))
        counts = sorted(cached(answer) for answer in done)
        self.assertEqual(counts[0], 0)
        self.assertGreater(counts[1], 500, counts)

    def test_metrics_and_pages_add_up(self):
        self.chat("tiny", [{"role": "user", "content": f"Metrics. {STORY}"}])
        self.chat("tiny", [{"role": "user", "content": f"Metrics. {STORY}"}])
        metrics = self.service.metrics()
        of = '{model_name="tiny"}'
        self.assertGreater(metrics["vllm:prefix_cache_hits_total" + of], 500)
        self.assertGreater(metrics["vllm:prefix_cache_queries_total" + of], metrics["vllm:prefix_cache_hits_total" + of])
        self.assertGreater(metrics["tandem_prefix_checkpoints" + of], 0)
        pages = {state: metrics[f'tandem_kv_pages{{model_name="tiny",state="{state}"}}']
                 for state in ("total", "free", "cached", "owned", "shared")}
        self.assertEqual(pages["free"] + pages["cached"] + pages["owned"], pages["total"])
        self.assertEqual(pages["shared"], 0)
        self.assertGreater(pages["cached"], 10)


if __name__ == "__main__":
    support.main()
