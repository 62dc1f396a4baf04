#!/usr/bin/env python3
"""A real engine of others behind Tandem, asked through the official SDK: what fails there by itself is answered here.

  engines_test.py --engine llama-server|vllm      the tiny hybrid; the engine is made by tools/peer_llama_server, tools/peer_vllm
Ends as skipped where the engine is not installed. engine_faults_test.py kills, stops and starves it.
"""
import json
import sys
import time
import unittest

import engine_kinds
import support

try:
    import openai  # noqa: F401: asked for by Service.sdk
except ImportError:
    print("skipped: the SDKs are not installed (tools/python_env test makes the environment)")
    sys.exit(77)

from sanitizer_test import TITLES, TOOLS, user

KIND = support.ENGINE
SHORT_PROMPT = "Write a short title for this conversation: " + "Tom asked us to review the budget and the network before Friday. " * 4
CACHE_QUERIES = 220  # the incident wants 200 in a row
LATE = [{"role": "system", "content": "Be brief."}, user("What is the capital of France?"), {"role": "assistant", "content": "Paris"},
        {"role": "system", "content": "Answer in one word."}, user("What is the capital of Italy?")]
QUESTIONS = [("What is the weather in Oslo?", "get_weather", {"city": "Oslo"}),
             ("Open a ticket for the printer with priority 3.", "create_ticket", {"item": "printer", "priority": 3}),
             ("Find a room for 8 people on Friday.", "find_room", {"day": "Friday", "seats": 8})]


def blank(text):
    return not (text or "").strip()


def arguments_of(kind):
    """How the engine is started: plain, and with its own parsers switched on, where it has such switches."""
    return {"vllm": {"plain": ["--enforce-eager"], "parsers": ["--enforce-eager", *engine_kinds.PARSERS]},
            "llama-server": {"plain": [], "no_parser": ["--reasoning-format", "none"]}}.get(kind, {"plain": []})


class Answers:
    """The tests of one way to start the engine; `arguments` is set by the classes below."""
    arguments = []

    @classmethod
    def setUpClass(cls):
        cls.service = support.Service(models=[("tiny", support.TINY)], model_keys={"arguments": cls.arguments} if cls.arguments else None,
                                      engines='load_deadline = "5m"')
        cls.addClassCleanup(cls.service.close)
        began = time.monotonic()
        cls.service.start(wait=False)
        cls.service.wait_ready(400)
        cls.service.key = json.loads(cls.service.ctl("key", "add", "e2e", "--scope", "inference", "--json"))["key"]
        print(f"\n{KIND} {cls.arguments}: ready after {time.monotonic() - began:.1f} s", file=sys.stderr)
        cls.client = cls.service.sdk(timeout=300)

    def ask(self, messages, **options):
        options.setdefault("temperature", 0)
        return self.client.chat.completions.create(model="tiny", messages=messages, **options)

    def receipt(self, body):
        answer = self.service.request("POST", "/v1/chat/completions", {"model": "tiny", "temperature": 0, **body}, {"x-tandem-explain": "1"},
                                      timeout=300)
        self.assertEqual(200, answer.status, answer)
        return answer.json(), answer.headers.get("x-tandem-receipt", "")

    def test_titles(self):
        found = [self.ask([user(title)], max_tokens=40).choices[0].message.content for title in TITLES]
        self.assertEqual(20, sum(not blank(text) for text in found), found)

    def test_titles_streamed(self):
        for title in TITLES[:5]:
            text = "".join(chunk.choices[0].delta.content or "" for chunk in self.ask([user(title)], max_tokens=40, stream=True)
                           if chunk.choices)
            self.assertFalse(blank(text))

    def test_late_system_message(self):
        answer = self.ask(LATE, max_tokens=60)
        self.assertIn("Rome", answer.choices[0].message.content)
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in self.ask(LATE, max_tokens=60, stream=True) if chunk.choices)
        self.assertEqual(answer.choices[0].message.content, streamed)

    def test_thoughts_have_their_own_field(self):
        message = self.ask([user(TITLES[0])], max_tokens=600).choices[0].message
        self.assertIn("short title", message.reasoning_content)
        self.assertFalse(blank(message.content))
        self.assertNotIn("</think>", message.content)

    def test_effort_words(self):
        """The engine itself ignores every word but the one that its template reads."""
        def reasoning(**options):
            return self.ask([user(TITLES[0])], max_tokens=600, **options).usage.completion_tokens_details.reasoning_tokens
        self.assertEqual(0, reasoning(reasoning_effort="none"))
        self.assertGreater(reasoning(reasoning_effort="high"), 40)
        self.assertEqual(0, reasoning(extra_body={"chat_template_kwargs": {"enable_thinking": False}}))

    def test_tools(self):
        for question, name, values in QUESTIONS:
            for stream in (False, True):
                options = {"model": "tiny", "messages": [user(question)], "tools": TOOLS, "temperature": 0, "max_tokens": 600}
                if stream:
                    with self.client.chat.completions.stream(**options) as events:
                        for _ in events:
                            pass
                        choice = events.get_final_completion().choices[0]
                else:
                    choice = self.client.chat.completions.create(**options).choices[0]
                self.assertEqual("tool_calls", choice.finish_reason, choice)
                call = choice.message.tool_calls[0]
                self.assertEqual((name, values), (call.function.name, json.loads(call.function.arguments)))
            messages = [user(question), choice.message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}),
                        {"role": "tool", "tool_call_id": call.id, "content": '{"ok": true, "value": 7}'}]
            self.assertFalse(blank(self.ask(messages, tools=TOOLS, max_tokens=600).choices[0].message.content))

    def test_forced_call(self):
        for choice in ("required", {"type": "function", "function": {"name": "find_room"}}):
            answer = self.ask([user("Hello there!")], tools=TOOLS, tool_choice=choice, max_tokens=600)
            self.assertTrue(answer.choices[0].message.tool_calls, answer)

    def test_choice_none_loses_nothing_silently(self):
        for question, *_ in QUESTIONS:
            body, _ = self.receipt({"messages": [user(question)], "tools": TOOLS, "tool_choice": "none", "max_tokens": 600})
            message = body["choices"][0]["message"]
            codes = [entry.get("code") for entry in body["tandem"]["receipt"]]
            self.assertFalse(message.get("tool_calls"))
            if blank(message["content"]) or "<function=" in message["content"]:
                self.assertIn("call_syntax_with_tool_choice_none", codes, body)

    def test_structured_answer(self):
        schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "size": {"enum": ["big", "small"]}},
                  "required": ["city", "size"], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "town", "schema": schema}}
        for limit in (60, 600):
            answer = self.ask([user("Give JSON about Oslo.")], response_format=form, max_tokens=limit)
            value = json.loads(answer.choices[0].message.content)
            self.assertEqual({"city", "size"}, set(value))
            self.assertIn(value["size"], ("big", "small"))

    def test_too_long_prompt_names_the_numbers(self):
        with self.assertRaises(openai.BadRequestError) as raised:
            self.ask([user("word " * 6000)], max_tokens=10)
        self.assertEqual("context_length_exceeded", raised.exception.code)
        self.assertRegex(str(raised.exception), r"\d{4}")

    def test_stop_strings_and_seeds(self):
        stopped = self.ask([user("What is the capital of Norway?")], max_tokens=40, stop=["Norway"], reasoning_effort="none")
        self.assertEqual("The capital of ", stopped.choices[0].message.content)
        self.assertEqual("stop", stopped.choices[0].finish_reason)
        texts = [self.ask([user("Tell me a story.")], max_tokens=40, temperature=1, seed=7).choices[0].message.content for _ in range(2)]
        self.assertEqual(*texts)

    def test_a_client_that_goes_away_frees_its_slot(self):
        stream = support.Stream(self.service, {"model": "tiny", "messages": [user("Tell me a long story.")], "max_tokens": 3000,
                                               "temperature": 1})
        next(stream.events())
        support.wait_until(lambda: self.service.slots_busy("tiny") == 1, 10, "one slot busy")
        stream.vanish()
        support.wait_until(lambda: self.service.slots_busy("tiny") == 0, 5, "no slot busy")

    def test_at_once(self):
        def one(index):
            return self.ask([user(TITLES[index % 20])], max_tokens=40).choices[0].message.content
        found = support.in_threads(8, one)
        self.assertEqual([], [text for text in found if isinstance(text, Exception) or blank(text)])

    def test_zz_prefix_cache_without_hits_is_reported(self):
        """Prompts under one block of this hybrid (vLLM: 384 tokens), repeated: on, and worth nothing."""
        if KIND != "vllm":
            self.skipTest("this engine's cache finds such prompts")
        for _ in range(CACHE_QUERIES):
            self.ask([user(SHORT_PROMPT)], max_tokens=1, reasoning_effort="none")
        incidents = support.wait_until(lambda: [i for i in json.loads(self.service.ctl("incidents", "--json", "--open"))["incidents"]
                                                if i["kind"] == "prefix_cache_no_hits"], 60, "incident prefix_cache_no_hits", every=1)
        self.assertGreaterEqual(incidents[0]["numbers"]["queries"], 200)


for way, words in arguments_of(KIND).items():
    made = type(f"Answers_{way}", (Answers, unittest.TestCase), {"arguments": words})
    globals()[made.__name__] = made
del made


if __name__ == "__main__":
    support.main()
