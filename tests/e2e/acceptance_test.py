#!/usr/bin/env python3
"""What a request that works on one model must do on every other: titles, tool calls through both SDKs, late system messages,
tool_choice none, the usual requests of front ends, answers that are asked for again.

  acceptance_test.py            the tiny hybrid
  acceptance_test.py --long     every model that is there; --only NAME,... picks some

Schema answers (200 of 200 on each model) are structured_test.py's.
"""
import collections
import json
import sys
import unittest

import support

try:
    import anthropic
    import openai  # noqa: F401: asked for by Service.sdk
except ImportError:
    print("skipped: the SDKs are not installed (tools/python_env test makes the environment)")
    sys.exit(77)

from sanitizer_test import TITLES, TOOLS, Sanitized, message_of, user
from structured_test import CHAT, MESSAGES, MODELS, REPEATS, RESPONSES, Structured, cases, take

REQUEST_S = 600
LATE = {"role": "system", "content": "Answer in one word."}
ASKED = [{"role": "system", "content": "Be brief."}, user("What is the capital of France?"), {"role": "assistant", "content": "Paris"}]
LATE_CHATS = [[*ASKED, LATE, user("What is the capital of Italy?")], [*ASKED, user("And of Italy?"), LATE],
              [user("What is the capital of France?"), LATE], [LATE]]
# What each of the tiny hybrid's three tools is asked for with, and the arguments that are in the question.
QUESTIONS = [("What is the weather in Oslo?", "get_weather", {"city": "Oslo"}),
             ("Open a ticket for the printer with priority 3.", "create_ticket", {"item": "printer", "priority": 3}),
             ("Find a room for 8 people on Friday.", "find_room", {"day": "Friday", "seats": 8})]
CALL_MARKS = ("<tool_call>", "<function=")


def blank(text):
    return not (text or "").strip()


def codes_of(answer):
    return [entry.get("code") for entry in answer.json().get("tandem", {}).get("receipt", [])]


def anthropic_tool(tool):
    function = tool["function"]
    return {"name": function["name"], "description": function["description"], "input_schema": function["parameters"]}


class Streamed:
    """A chat stream put together, and its form checked: one choice, one role, one end, then [DONE]."""

    def __init__(self, service, body, headers=None):
        stream = support.Stream(service, body, timeout=REQUEST_S, headers=headers)
        if stream.status != 200:
            raise AssertionError(stream.answer.read())
        events = list(stream.events())
        if events.pop() != "[DONE]":
            raise AssertionError("no [DONE]")
        self.usage = next((event["usage"] for event in events if event.get("usage")), None)
        self.receipt = next((event["tandem"]["receipt"] for event in events if "tandem" in event), [])
        if len({event["id"] for event in events}) != 1:
            raise AssertionError("more than one id")
        choices = [choice for event in events for choice in event["choices"]]
        if {choice["index"] for choice in choices} != {0}:
            raise AssertionError(f"choices {choices}")
        self.finishes = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
        self.roles = [choice["delta"]["role"] for choice in choices if choice["delta"].get("role")]
        if len(self.finishes) != 1 or self.roles != ["assistant"]:
            raise AssertionError(f"ends {self.finishes}, roles {self.roles}")
        self.content = "".join(choice["delta"].get("content") or "" for choice in choices)
        self.reasoning = "".join(choice["delta"].get("reasoning_content") or "" for choice in choices)
        self.calls = [call for choice in choices for call in choice["delta"].get("tool_calls") or []]


class Acceptance:
    """The tests of one model; name, file, thinks and syntax are set by the classes below."""
    all_of = Structured.all_of

    @classmethod
    def setUpClass(cls):
        if not cls.file.exists():
            raise unittest.SkipTest(f"{cls.file} is not there")
        cls.service = support.Service(models=[(cls.name, cls.file)])
        cls.addClassCleanup(cls.service.close)
        cls.service.start()
        cls.roomy = 600 if cls.thinks else 120
        cls.openai = cls.service.sdk(timeout=REQUEST_S)
        cls.anthropic = anthropic.Anthropic(base_url=cls.service.base, api_key=cls.service.key, max_retries=0, timeout=REQUEST_S)

    def post(self, path, body, headers=None):
        return self.service.request("POST", path, {"model": self.name, **body}, headers, timeout=REQUEST_S)

    # --- Titles ---

    def test_titles(self):
        self.assertEqual(20, len(TITLES))

        def job(title, extra):
            def work():
                message = message_of(self.post(CHAT, {"messages": [user(title)], "max_tokens": 40, **extra}))
                return [f"empty: {message}" if blank(message["content"]) else ""]
            return f"{title}, {extra}", work
        for what, extra in (("as a client asks", {}), ("greedy", {"temperature": 0}), ("as a system message", None)):
            jobs = [job(title, extra or {}) for title in TITLES]
            if extra is None:
                jobs = [(title, lambda title=title: ["" if not blank(message_of(self.post(CHAT, {
                    "messages": [{"role": "system", "content": title}], "max_completion_tokens": 40}))["content"]) else "empty"])
                        for title in TITLES]
            self.all_of(f"titles of at most 40 tokens, {what}", jobs)

    def test_titles_without_the_rule_are_empty(self):
        if not self.thinks:
            self.skipTest(f"{self.name} does not think: there is nothing to switch off")
        with Sanitized('[sanitizer]\noff = ["R20", "R22", "R23"]\n', models=[(self.name, self.file)]) as service:
            found = [message_of(service.ask([user(title)], model=self.name, max_tokens=40))["content"] for title in TITLES]
        empty = sum(blank(text) for text in found)
        print(f"\n{self.name}: titles with R20, R22 and R23 off: {empty} of {len(TITLES)} empty", file=sys.stderr)
        self.assertEqual(len(TITLES), empty)

    # --- Tool calls, there and back ---

    def openai_round(self, question, choice, stream):
        """[(name, arguments)] of the first answer, the text of the one to the results."""
        messages = [user(question)]
        options = {"model": self.name, "temperature": 0, "tools": TOOLS, "tool_choice": choice, "max_tokens": self.roomy}
        if stream:
            with self.openai.chat.completions.stream(messages=messages, **options) as events:
                for _ in events:
                    pass
                first = events.get_final_completion().choices[0]
        else:
            first = self.openai.chat.completions.create(messages=messages, **options).choices[0]
        calls = first.message.tool_calls or []
        self.assertEqual("tool_calls" if calls else "stop", first.finish_reason, first)
        messages.append(first.message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
        messages += [{"role": "tool", "tool_call_id": call.id, "content": '{"ok": true, "value": 7}'} for call in calls]
        second = self.openai.chat.completions.create(messages=messages, **{**options, "tool_choice": "none", "max_tokens": 60})
        return [(call.function.name, json.loads(call.function.arguments)) for call in calls], second.choices[0].message.content

    def anthropic_round(self, question, choice, stream):
        messages = [user(question)]
        options = {"model": self.name, "max_tokens": self.roomy, "tools": [anthropic_tool(tool) for tool in TOOLS],
                   "tool_choice": {"type": "any" if choice == "required" else choice}, "extra_body": {"temperature": 0}}
        if stream:
            with self.anthropic.messages.stream(messages=messages, **options) as events:
                first = events.get_final_message()
        else:
            first = self.anthropic.messages.create(messages=messages, **options)
        calls = [block for block in first.content if block.type == "tool_use"]
        self.assertEqual("tool_use" if calls else "end_turn", first.stop_reason, first)
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": '{"ok": true, "value": 7}'} for call in calls]
        messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": results or "Go on."}]
        second = self.anthropic.messages.create(messages=messages, **{**options, "tool_choice": {"type": "none"}, "max_tokens": 60})
        text = "".join(block.text for block in second.content if block.type == "text")
        return [(call.name, call.input) for call in calls], text

    def round_job(self, sdk, question, choice, stream, wanted):
        def work():
            calls, text = getattr(self, f"{sdk}_round")(question, choice, stream)
            faults = []
            if wanted and wanted not in calls:
                faults.append(f"called {calls}, not {wanted}")
            if choice == "required" and not calls:
                faults.append("no call")
            if blank(text):
                faults.append("no answer to the result")
            return ["; ".join(faults)]
        return f"{sdk}, {question}, {choice}, {'stream' if stream else 'whole'}", work

    def test_tool_round_trips(self):
        def jobs(choice, questions):
            return [self.round_job(sdk, question, choice, stream, wanted)
                    for question, wanted in questions for sdk in ("openai", "anthropic") for stream in (False, True)]
        if self.thinks:  # the tiny hybrid was made for these
            self.all_of("round trips of its own three tools", jobs("auto", [(text, (name, values)) for text, name, values in QUESTIONS]))
        elif self.syntax:  # a small real model: one question that it understands
            self.all_of("round trips, auto", jobs("auto", [(QUESTIONS[0][0], None)]))
            calls = self.openai_round(QUESTIONS[0][0], "auto", False)[0]
            self.assertEqual(["get_weather"], [name for name, _ in calls], calls)
            self.assertEqual("Oslo", calls[0][1]["city"])
        self.all_of("round trips, required", jobs("required", [(QUESTIONS[0][0], None)]))

    def test_streamed_calls_are_those_of_the_whole_answer(self):
        for choice in ("auto", "required"):
            body = {"model": self.name, "messages": [user(QUESTIONS[0][0])], "tools": TOOLS, "tool_choice": choice, "temperature": 0,
                    "max_tokens": self.roomy}
            whole = message_of(self.post(CHAT, body)).get("tool_calls") or []
            streamed = Streamed(self.service, body)
            self.assertEqual([call["function"] for call in whole], [call["function"] for call in streamed.calls])
            self.assertEqual(list(range(len(whole))), [call["index"] for call in streamed.calls])
            self.assertTrue(all(call["id"] for call in streamed.calls))

    def test_tools_of_a_template_that_writes_none(self):
        if self.syntax:
            self.skipTest(f"the template of {self.name} writes tools")
        answer = self.post(CHAT, {"messages": [user(QUESTIONS[0][0])], "tools": TOOLS, "max_tokens": 40}, {"x-tandem-explain": "1"})
        self.assertFalse(blank(message_of(answer)["content"]))
        self.assertIn("tools_not_in_template", codes_of(answer))

    def test_choice_none_leaks_nothing_silently(self):
        prompts = [question for question, _, _ in QUESTIONS] + cases.CALL_PROMPTS

        def job(seed, stream):
            body = {"model": self.name, "messages": [user(prompts[seed % len(prompts)])], "temperature": 1, "seed": seed, "tools": TOOLS,
                    "tool_choice": "none", "max_tokens": 100}

            def work():
                explain = {"x-tandem-explain": "1"}
                if stream:
                    answer = Streamed(self.service, body, explain)
                    content, calls, codes = answer.content, answer.calls, [entry.get("code") for entry in answer.receipt]
                else:
                    answer = self.post(CHAT, body, explain)
                    message = message_of(answer)
                    content, calls, codes = message["content"] or "", message.get("tool_calls"), codes_of(answer)
                if calls:
                    return [f"calls {calls}"]
                leaked = any(mark in content for mark in CALL_MARKS)
                return [f"leaked {content!r}" if leaked and "call_syntax_with_tool_choice_none" not in codes else ""]
            return f"none, seed {seed}", work
        self.all_of("tool_choice none", [job(seed, seed % 4 == 3) for seed in range(REPEATS * 2)])

    # --- System messages anywhere ---

    def test_late_system_messages(self):
        def job(messages, stream, extra):
            body = {"model": self.name, "messages": messages, "max_tokens": 60, "seed": 1, **extra}

            def work():
                content = Streamed(self.service, body).content if stream else message_of(self.post(CHAT, body))["content"]
                return [f"empty: {messages}" if blank(content) else ""]
            return f"late, {extra}", work
        self.all_of("late system messages", [job(messages, stream, extra) for messages in LATE_CHATS for stream in (False, True)
                                             for extra in ({"temperature": 0}, {"temperature": 1}, {"tools": TOOLS, "tool_choice": "none"})])

    def test_late_system_messages_of_other_interfaces(self):
        for messages in LATE_CHATS[:3]:
            answer = self.post(MESSAGES, {"messages": messages, "max_tokens": 60})
            self.assertEqual(200, answer.status, answer)
            self.assertFalse(blank("".join(block.get("text", "") for block in answer.json()["content"])), answer)
            developer = [{**message, "role": "developer"} if message["role"] == "system" else message for message in messages]
            answer = self.post(RESPONSES, {"input": developer, "max_output_tokens": 60, "instructions": "Be kind."})
            self.assertEqual(200, answer.status, answer)
            texts = [part["text"] for item in answer.json()["output"] if item["type"] == "message" for part in item["content"]]
            self.assertFalse(blank("".join(texts)), answer)

    # --- What clients send ---

    def test_open_webui(self):
        faults = collections.Counter()
        # Background tasks: never streamed, one user message, three caps.
        for task, cap in (("title_generation", {"max_completion_tokens": 1000}), ("title_generation", {"max_tokens": 1000}),
                          ("emoji_generation", {"max_completion_tokens": 4}), ("emoji_generation", {"max_tokens": 4}),
                          ("tags_generation", {}), ("follow_up_generation", {}), ("query_generation", {})):
            cap = cap or {"max_completion_tokens": 200}  # sent without one; bounded here for the time it takes
            answer = self.post(CHAT, {"messages": [user(f"### Task:\n{TITLES[0]}")], "stream": False, **cap,
                                      "metadata": {"task": task, "task_body": {"model": self.name}, "chat_id": "c"}})
            faults[f"{task} {cap}"] += answer.status != 200 or blank(message_of(answer)["content"])
        # The chat itself.
        stored = ('<details type="reasoning" done="true" duration="1">\n<summary>Thought for 1 second</summary>\n&gt; x\n</details>\n'
                  "Paris")
        chat = {"model": self.name, "messages": [
            {"role": "system", "content": "You are helpful."}, user("What is the capital of France?"),
            {"role": "assistant", "content": stored}, {"role": "user", "content": [{"type": "text", "text": "And of Italy?"}]}],
            "session_id": "s", "chat_id": "c", "id": "m", "parent_id": None, "background_tasks": {"title_generation": True},
            "features": {"web_search": False}, "variables": {"{{USER_NAME}}": "u"}, "model_item": {"id": self.name}, "params": {},
            "tool_servers": [], "max_tokens": 200}
        streamed = Streamed(self.service, {**chat, "stream_options": {"include_usage": True}})
        faults["stream"] += blank(streamed.content) or streamed.usage is None
        faults["whole"] += blank(message_of(self.post(CHAT, {**chat, "stream": False}))["content"])
        self.assertEqual({}, {name: count for name, count in faults.items() if count})
        models = self.service.request("GET", "/v1/models").json()["data"]
        self.assertTrue(all(model["owned_by"] and model["created"] for model in models))

    def test_langchain(self):
        parts = [{"role": "system", "content": [{"type": "text", "text": "Use tools."}]}, user(QUESTIONS[0][0])]
        usual = {"model": self.name, "n": 1, "temperature": 0, "max_completion_tokens": self.roomy, "logprobs": None, "seed": None, "stop": None}
        for extra in ({}, {"tools": TOOLS, "parallel_tool_calls": False}, {"tools": TOOLS, "tool_choice": "auto"}):
            whole = message_of(self.post(CHAT, {**usual, "messages": parts, "stream": False, **extra}))
            self.assertFalse(blank(whole["content"]) and not whole.get("tool_calls"), whole)
            streamed = Streamed(self.service, {**usual, "messages": parts, "stream_options": {"include_usage": True}, **extra})
            self.assertFalse(blank(streamed.content) and not streamed.calls)
            self.assertGreater(streamed.usage["total_tokens"], 0)
        # An agent's history, as it writes its own messages down.
        call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
        history = [*parts, {"role": "assistant", "content": None, "tool_calls": [call]},
                   {"role": "tool", "content": "7 degrees", "tool_call_id": "call_1"}]
        for stream in (False, True):
            body = {**usual, "messages": history, "tools": TOOLS, "tool_choice": "none", "max_completion_tokens": 60}
            text = Streamed(self.service, body).content if stream else message_of(self.post(CHAT, body))["content"]
            self.assertFalse(blank(text))

    def test_worked_cases_over_http(self):
        """Nothing before the rules refuses what the rules repair, and a refusal names the same field."""
        if not self.thinks:
            self.skipTest("the tiny hybrid shows it, in less time")

        def job(case):
            body = dict(case["input"]["request"])
            if body.get("max_tokens") is None and body.get("max_completion_tokens") is None:
                body["max_tokens"] = 16
            elif isinstance(body.get("max_tokens"), int):
                body["max_tokens"] = min(body["max_tokens"], 60)
            refusal = case["expected"].get("reject", {})

            def work():
                answer = self.post(CHAT, body)
                if not refusal:
                    return ["" if answer.status == 200 else f"refused: {answer}"]
                got = {"status": answer.status, "param": support.error_of(answer)["param"] if answer.status != 200 else None}
                return ["" if got == {"status": refusal["status"], "param": refusal.get("param", got["param"])} else f"{got}, not {refusal}"]
            return case["id"], work
        found = [json.loads(line) for file in sorted((support.ROOT / "tests" / "policies" / "cases").glob("*.jsonl"))
                 for line in file.read_text("utf-8").splitlines() if line.strip()]
        # Other room than this model's, and images, which its kind does not take, are no matter of the rules.
        wanted = [case for case in found if case["kind"] == "request" and "n_ctx" not in case["input"]["target"]
                  and "image_url" not in json.dumps(case["input"])]
        self.assertGreater(len(wanted), 280)
        self.all_of("worked cases over HTTP", [job(case) for case in wanted])

    # --- Asked for again ---

    def test_a_repaired_stream_is_one_answer(self):
        if not self.thinks:
            self.skipTest(f"{self.name} does not think: it cannot answer with thoughts only")
        usage = {"stream_options": {"include_usage": True}}
        body = {"model": self.name, "messages": [user(TITLES[0])], "max_tokens": 40, "temperature": 0}
        with Sanitized('[sanitizer]\noff = ["R20", "R22"]\n', models=[(self.name, self.file)]) as service:
            repaired = Streamed(service, {**body, **usage})
            second = Streamed(service, {**body, **usage, "chat_template_kwargs": {"enable_thinking": False}})
        with Sanitized('[sanitizer]\noff = ["R20", "R22", "R23"]\n', models=[(self.name, self.file)]) as service:
            first = Streamed(service, {**body, **usage})
        self.assertEqual(("", 40), (first.content.strip(), first.usage["completion_tokens"]))
        self.assertEqual(second.content, repaired.content)
        self.assertEqual(first.reasoning, repaired.reasoning)
        for field in ("prompt_tokens", "completion_tokens", "total_tokens"):
            self.assertEqual(first.usage[field] + second.usage[field], repaired.usage[field], field)

    # --- What was found out about the model ---

    def test_the_probe_passed(self):
        profile = json.loads(self.service.ctl("model", "show", self.name, "--json"))["profile"]
        shown = {name: fact["value"] for name, fact in profile.items() if name.startswith(("runs_", "title_"))}
        print(f"\n{self.name}: {shown}", file=sys.stderr)
        self.assertEqual({"probe"}, {profile[name]["source"] for name in shown})
        for name in ("runs_late_system", "runs_system_only", "runs_tool_history", "runs_title"):
            # On a busy machine a slow model may have run out of its time; a "no" it must not have.
            self.assertIn(shown[name].split(":")[0], ("yes", "not tried"), name)
        self.assertIn(shown["runs_tools"].split(":")[0], ("yes", "not tried") if self.syntax else ("no",))
        self.assertEqual(self.thinks, "title_without_thinking" in shown)


def make_classes(long, only):
    for name, file, thinks, syntax in MODELS:
        if name in only if only else long or name == "tiny":
            made = type("Acceptance_" + name.translate({ord(c): "_" for c in ".-"}), (Acceptance, unittest.TestCase), {
                "name": name, "file": file, "thinks": thinks, "syntax": syntax})
            globals()[made.__name__] = made


if __name__ == "__main__":
    make_classes(bool(take("--long")), [name for name in take("--only", argument=True).split(",") if name])
    support.main()
