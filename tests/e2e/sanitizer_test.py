#!/usr/bin/env python3
"""The sanitizer, the profiles and the answer parser on real engines: the tiny hybrid, which thinks and calls tools, beside a
file of another family (SmolLM2 where it is there, else a second tiny hybrid)."""
import json
import unittest

import support

CHAT = "/v1/chat/completions"
TITLES = [f"Write a short title for this conversation: {who} asked us to {what} before {day} because the {why} is late."
          for who, what in (("Tom", "review the budget"), ("Sara", "cancel the badge"), ("Tom", "review the network"),
                            ("Sara", "review the budget"), ("Tom", "cancel the badge"))
          for day, why in (("Wednesday", "invoice"), ("Monday", "schedule"), ("Friday", "printer"), ("Monday", "invoice"))]
SMOL = support.CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"


def tool(name, description, **properties):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties)[:1]}}}


# The three tools of the tiny hybrid's corpus, as it saw them.
TOOLS = [tool("get_weather", "Weather of a city", city="string", unit="string"),
         tool("create_ticket", "Open a ticket", item="string", priority="integer"),
         tool("find_room", "Find a free room", day="string", seats="integer")]


def user(text):
    return {"role": "user", "content": text}


class Sanitized(support.Service):
    def __init__(self, extra="", **options):
        super().__init__(**options)
        self.sections = extra

    def write_config(self):
        super().write_config()
        with open(self.folder / "config.toml", "a", encoding="ascii") as file:
            file.write(self.sections)

    def ask(self, messages, headers=None, **fields):
        body = {"model": "tiny", "messages": messages, "temperature": 0, **fields}
        return self.request("POST", CHAT, body, headers)


def message_of(answer):
    if answer.status != 200:
        raise AssertionError(answer)
    return answer.json()["choices"][0]["message"]


class SanitizerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        other = ("smol", SMOL) if SMOL.exists() else ("tiny2", support.TINY)
        cls.other = other[0]
        cls.service = Sanitized(models=[("tiny", support.TINY), other])
        cls.addClassCleanup(cls.service.close)
        cls.service.start()
        cls.client = cls.service.sdk()

    # --- Requests ---

    def test_late_system_message_is_answered(self):
        messages = [{"role": "system", "content": "Be brief."}, user("What is the capital of France?"),
                    {"role": "assistant", "content": "Paris"}, {"role": "system", "content": "Answer in one word."},
                    user("What is the capital of Italy?")]
        for model in ("tiny", self.other):
            answer = self.service.ask(messages, model=model, max_tokens=60)
            self.assertTrue(message_of(answer)["content"].strip(), (model, answer))
        answer = self.service.ask(messages, max_tokens=60)
        self.assertIn("R4=messages", answer.headers["x-tandem-receipt"])
        late_first = self.service.ask([user("What is the capital of France?"), messages[0]], max_tokens=60)
        self.assertTrue(message_of(late_first)["content"].strip(), late_first)

    def test_titles(self):
        for title in TITLES:
            answer = self.service.ask([user(title)], max_tokens=40)
            message = message_of(answer)
            self.assertTrue(message["content"].strip(), answer)
            self.assertIn("R20", answer.headers["x-tandem-receipt"])
            self.assertEqual(0, answer.json()["usage"]["completion_tokens_details"]["reasoning_tokens"])

    def test_thoughts_have_their_own_field(self):
        answer = self.service.ask([user(TITLES[0])], max_tokens=600)
        message = message_of(answer)
        self.assertIn("short title", message["reasoning_content"])
        self.assertNotIn("</think>", message["content"])
        self.assertTrue(message["content"].strip())
        self.assertNotIn("reasoning", message)
        usage = answer.json()["usage"]
        self.assertGreater(usage["completion_tokens_details"]["reasoning_tokens"], 40)
        asked = message_of(self.service.ask([user(TITLES[0])], max_tokens=600, include_reasoning=True))
        self.assertEqual(asked["reasoning"], asked["reasoning_content"])

    def test_a_budget_leaves_room_for_the_answer(self):
        answer = self.service.ask([user(TITLES[0])], max_tokens=60, chat_template_kwargs={"enable_thinking": True})
        message = message_of(answer)
        self.assertTrue(message["content"].strip(), answer)
        self.assertTrue(message["reasoning_content"].strip(), answer)
        self.assertIn("R22", answer.headers["x-tandem-receipt"])

    def test_receipt_in_header_and_body(self):
        answer = self.service.ask([user("hi")], {"x-tandem-explain": "1"}, made_up=1, max_tokens=20)
        self.assertIn("R27=param_dropped:made_up", answer.headers["x-tandem-receipt"])
        listed = answer.json()["tandem"]["receipt"]
        self.assertTrue(any(entry["rule"] == "R27" and entry.get("code") == "param_dropped:made_up" for entry in listed), listed)
        self.assertNotIn("tandem", self.service.ask([user("hi")], made_up=1, max_tokens=20).json())
        metrics = self.service.metrics()
        self.assertGreaterEqual(metrics['tandem_sanitizer_changes_total{model_name="tiny",rule="R27",code="param_dropped"}'], 2)

    def test_limits_in_the_words_of_the_client(self):
        refused = self.service.ask([user("hi")], response_format={"type": "yaml"})
        self.assertEqual((400, "response_format.type"), (refused.status, support.error_of(refused)["param"]))
        refused = self.service.ask([user("hi")], tools=TOOLS, tool_choice={"type": "function", "function": {"name": "none"}})
        self.assertEqual((400, "tool_choice.function.name"), (refused.status, support.error_of(refused)["param"]))

    # --- Tools ---

    def tool_round(self, stream):
        """The call of a question and the answer to its result, through the SDK."""
        messages = [user("What is the weather in Oslo?")]
        options = {"model": "tiny", "temperature": 0, "tools": TOOLS, "max_tokens": 600}
        if stream:
            with self.client.chat.completions.stream(messages=messages, **options) as events:
                for _ in events:
                    pass
                first = events.get_final_completion()
        else:
            first = self.client.chat.completions.create(messages=messages, **options)
        choice = first.choices[0]
        self.assertEqual("tool_calls", choice.finish_reason)
        self.assertEqual(1, len(choice.message.tool_calls))
        call = choice.message.tool_calls[0]
        self.assertEqual("get_weather", call.function.name)
        self.assertEqual({"city": "Oslo"}, json.loads(call.function.arguments))
        self.assertTrue(call.id)
        messages += [choice.message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}),
                     {"role": "tool", "tool_call_id": call.id, "content": '{"temperature": 7}'}]
        second = self.client.chat.completions.create(messages=messages, **options)
        self.assertEqual("stop", second.choices[0].finish_reason)
        self.assertTrue(second.choices[0].message.content.strip())
        return call.function.arguments, second.choices[0].message.content

    def test_tool_round_trip(self):
        self.assertEqual(self.tool_round(stream=False), self.tool_round(stream=True))

    def test_numbers_have_the_type_of_the_schema(self):
        message = message_of(self.service.ask([user("Open a ticket for the printer with priority 3.")], tools=TOOLS, max_tokens=600))
        self.assertEqual({"item": "printer", "priority": 3}, json.loads(message["tool_calls"][0]["function"]["arguments"]))

    def test_forced_calls(self):
        for choice, name in (("required", None), ({"type": "function", "function": {"name": "find_room"}}, "find_room")):
            for model in ("tiny", self.other):
                answer = self.service.ask([user("Hello there!")], model=model, tools=TOOLS, tool_choice=choice, max_tokens=600)
                call = message_of(answer)["tool_calls"][0]["function"]
                self.assertIn(call["name"], [name] if name else [each["function"]["name"] for each in TOOLS])
                self.assertIsInstance(json.loads(call["arguments"]), dict)

    def test_structured_answers(self):
        schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "size": {"enum": ["big", "small"]}},
                  "required": ["city", "size"], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "town", "schema": schema}}
        for model in ("tiny", self.other):
            for limit in (40, 600):
                answer = self.service.ask([user("Give JSON about Oslo.")], model=model, response_format=form, max_tokens=limit)
                value = json.loads(message_of(answer)["content"])
                self.assertEqual({"city", "size"}, set(value))
                self.assertIn(value["size"], ("big", "small"))
        refused = self.service.ask([user("x")], response_format=form, max_tokens=3)
        self.assertEqual((400, "max_tokens"), (refused.status, support.error_of(refused)["param"]))
        schema["properties"]["city"]["contentEncoding"] = "base64"
        schema["if"] = {"required": ["city"]}
        refused = self.service.ask([user("x")], response_format=form)
        self.assertEqual(400, refused.status, refused)
        self.assertTrue(support.error_of(refused)["param"].startswith("response_format.json_schema.schema"), refused)

    def test_choice_none_leaks_nothing_silently(self):
        for text in ("What is the weather in Oslo?", "Find a room for 8 people on Friday.",
                     "Open a ticket for the printer with priority 3."):
            answer = self.service.ask([user(text)], {"x-tandem-explain": "1"}, tools=TOOLS, tool_choice="none", max_tokens=600)
            message = message_of(answer)
            self.assertNotIn("tool_calls", message)
            if "<tool_call>" in message["content"] or "<function=" in message["content"]:
                codes = [entry.get("code") for entry in answer.json()["tandem"]["receipt"]]
                self.assertIn("call_syntax_with_tool_choice_none", codes, answer)

    # --- What clients send ---

    def test_open_webui(self):
        task = {"stream": False, "metadata": {"task": "title_generation", "chat_id": "c"}}
        for extra in ({"max_completion_tokens": 1000}, {"max_completion_tokens": 4}, {}):
            for model in ("tiny", self.other):
                answer = self.service.request("POST", CHAT, {"model": model, "messages": [user(TITLES[0])], **task, **extra})
                self.assertTrue(message_of(answer)["content"].strip(), answer)
        stream = support.Stream(self.service, {"model": "tiny", "messages": [
            {"role": "system", "content": "You are helpful."}, user("What is the capital of France?"),
            {"role": "assistant", "content": '<details type="reasoning" done="true" duration="1">\n<summary>Thought</summary>\n> x\n'
             "</details>\nParis"}, user("What is the capital of Italy?")], "stream_options": {"include_usage": True},
            "session_id": "s", "chat_id": "c", "id": "m", "background_tasks": {}, "features": {}, "variables": {}})
        events = list(stream.events())
        self.assertEqual("[DONE]", events[-1])
        self.assertEqual([], events[-2]["choices"])
        self.assertTrue("".join(event["choices"][0]["delta"].get("content") or "" for event in events[:-2]).strip())

    def test_langchain(self):
        messages = [{"role": "system", "content": [{"type": "text", "text": "Use tools."}]}, user("What is the weather in Oslo?")]
        for stream in (False, True):
            extra = {"stream_options": {"include_usage": True}} if stream else {}
            answer = self.service.ask(messages, tools=TOOLS, stream=stream, n=1, parallel_tool_calls=False, max_completion_tokens=600,
                                      **extra)
            self.assertEqual(200, answer.status, answer)
            self.assertIn(b"get_weather", answer.body)
        for model in ("tiny", self.other):
            answer = self.service.ask([user("Hi")], model=model, stream=False, n=1, logprobs=None, seed=None, stop=None)
            self.assertTrue(message_of(answer)["content"].strip(), answer)

    # --- Profiles ---

    def test_model_show_prints_facts_with_sources(self):
        profile = json.loads(self.service.ctl("model", "show", "tiny", "--json"))["profile"]
        self.assertEqual({"value": "leading", "source": "probe"}, profile["system_messages"])
        self.assertEqual({"value": "enable_thinking", "source": "probe"}, profile["thinking"])
        self.assertEqual({"value": "qwen-xml", "source": "probe"}, profile["tool_syntax"])
        self.assertEqual("yes", profile["prompt_opens_think"]["value"])
        self.assertEqual({"value": "yes", "source": "probe"}, profile["title_without_thinking"])
        self.assertIn("profile.tool_syntax", self.service.ctl("model", "show", "tiny"))


class SwitchedOffTest(unittest.TestCase):
    def test_without_the_rules_a_title_is_empty(self):
        sections = '[sanitizer]\noff = ["R20", "R22", "R23"]\n'
        with Sanitized(sections) as service:
            empty = sum(not message_of(service.ask([user(title)], max_tokens=40))["content"].strip() for title in TITLES)
            self.assertEqual(len(TITLES), empty)

    def test_an_answer_of_thoughts_only_is_asked_for_again(self):
        sections = '[sanitizer]\noff = ["R20", "R22"]\n'
        with Sanitized(sections) as service:
            for title in TITLES[:4]:
                answer = service.ask([user(title)], {"x-tandem-explain": "1"}, max_tokens=40)
                self.assertTrue(message_of(answer)["content"].strip(), answer)
                self.assertGreater(answer.json()["usage"]["completion_tokens"], 40)
                stream = support.Stream(service, {"model": "tiny", "messages": [user(title)], "max_tokens": 40, "temperature": 0})
                deltas = [event["choices"][0] for event in stream.events() if event != "[DONE]"]
                self.assertEqual(message_of(answer)["content"], "".join(d["delta"].get("content") or "" for d in deltas))
                self.assertEqual(1, sum(d["finish_reason"] is not None for d in deltas))
            self.assertGreaterEqual(service.metrics()['tandem_empty_content_after_reasoning_total{model_name="tiny"}'], 8)

    def test_configuration_has_the_last_word(self):
        with Sanitized(model_keys={"thinks_by_default": "no"}) as service:
            shown = json.loads(service.ctl("model", "show", "tiny", "--json"))["profile"]["thinks_by_default"]
            self.assertEqual({"value": "no", "source": "configuration"}, shown)


if __name__ == "__main__":
    support.main()
