#!/usr/bin/env python3
"""The official Anthropic SDK, unmodified, against the service: messages, streams, counts, tools, errors."""
import json
import sys
import unittest

import support

try:
    import anthropic
except ImportError:
    print("skipped: the Anthropic SDK is not installed (see tools/python_env)")
    sys.exit(77)

CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
STORY = [{"role": "user", "content": "Tell a short story about Nora and a deer."}]


def tool(name, description, required, **properties):
    return {"name": name, "description": description,
            "input_schema": {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()},
                             "required": [required]}}


CODER = support.CACHE / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"

# The three tools of the test model's corpus.
TOOLS = [tool("get_weather", "Weather of a city", "city", city="string", unit="string"),
         tool("create_ticket", "Open a ticket", "item", item="string", priority="integer"),
         tool("find_room", "Find a free room", "day", day="string", seats="integer")]
WEATHER = [{"role": "user", "content": "What is the weather in Oslo?"}]


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def prompt_tokens(message):
    return message.usage.input_tokens + message.usage.cache_read_input_tokens


class AnthropicTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = support.Service()
        cls.addClassCleanup(cls.service.close)
        cls.service.start()
        cls.client = cls.sdk()

    @classmethod
    def sdk(cls, **options):
        options = {"api_key": cls.service.key, "max_retries": 0, "timeout": 120, **options}
        return anthropic.Anthropic(base_url=cls.service.base, **options)

    def options(self, options):
        """Greedy: the SDK has no argument for it any more."""
        extra = {"temperature": 0, **options.pop("extra_body", {})}
        return {"model": "default", "max_tokens": 200, "messages": CAPITAL, "extra_body": extra, **options}

    def create(self, **options):
        return self.client.messages.create(**self.options(options))

    def stream(self, **options):
        """The final message of a stream, as the SDK puts it together, and the types of its events."""
        types = []
        with self.client.messages.stream(**self.options(options)) as stream:
            for event in stream:
                types.append(event.type)
            return stream.get_final_message(), types

    # --- Models ---

    def test_models(self):
        models = list(self.client.models.list())
        self.assertEqual(["tiny", "tiny2"], [model.id for model in models])
        self.assertEqual({"model"}, {model.type for model in models})
        self.assertGreater(models[0].created_at.year, 2000)
        self.assertEqual("tiny2", self.client.models.retrieve("tiny2").display_name)
        with self.assertRaises(anthropic.NotFoundError):
            self.client.models.retrieve("no-such-model")

    # --- Answers ---

    def test_create(self):
        message = self.create()
        self.assertEqual(("message", "assistant", "tiny"), (message.type, message.role, message.model))
        self.assertEqual("end_turn", message.stop_reason)
        self.assertIsNone(message.stop_sequence)
        self.assertEqual(["text"], [block.type for block in message.content])
        self.assertIn("Paris", message.content[0].text)
        self.assertGreater(message.usage.output_tokens, 3)

    def test_names_answer_alike(self):
        texts = {name: text_of(self.create(model=name)) for name in ("default", "tiny-alias", "tiny2", "optional")}
        self.assertEqual(1, len(set(texts.values())), texts)

    def test_both_keys_and_any_version(self):
        for sdk in (self.sdk(), self.sdk(api_key=None, auth_token=self.service.key),
                    self.sdk(default_headers={"anthropic-version": "2026-10-21"})):
            self.assertIn("Paris", text_of(sdk.messages.create(**self.options({}))))

    def test_raw_without_version_and_with_query(self):
        body = {"model": "default", "max_tokens": 60, "temperature": 0, "messages": CAPITAL}
        answer = self.service.request("POST", "/v1/messages?beta=true", body,
                                      headers={"x-api-key": self.service.key}, key=False)
        self.assertEqual(200, answer.status)
        self.assertIn("Paris", answer.json()["content"][0]["text"])
        self.assertEqual(answer.headers["x-request-id"], answer.headers["request-id"])

    def test_max_tokens(self):
        message = self.create(max_tokens=5, messages=STORY)
        self.assertEqual(("max_tokens", 5), (message.stop_reason, message.usage.output_tokens))

    def test_stop_sequences(self):
        whole = text_of(self.create(messages=STORY))
        word = whole.split()[6]
        for message in (self.create(messages=STORY, stop_sequences=["never said", word]),
                        self.stream(messages=STORY, stop_sequences=["never said", word])[0]):
            self.assertEqual(("stop_sequence", word), (message.stop_reason, message.stop_sequence))
            self.assertEqual(whole[:whole.index(word)].rstrip(), text_of(message).rstrip())

    # --- Streams ---

    def test_stream_equals_answer(self):
        for options in ({}, {"messages": STORY}, {"max_tokens": 4}, {"thinking": {"type": "adaptive"}}):
            with self.subTest(options=options):
                whole = self.create(**dict(options))
                streamed, types = self.stream(**dict(options))
                self.assertEqual([block.to_dict() for block in whole.content],
                                 [block.to_dict() for block in streamed.content])
                self.assertEqual(whole.stop_reason, streamed.stop_reason)
                self.assertEqual(whole.usage.output_tokens, streamed.usage.output_tokens)
                self.assertEqual(("message_start", "message_stop"), (types[0], types[-1]))

    def test_raw_stream(self):
        """What the SDK hides: named events, in order, and nothing of another interface."""
        body = {"model": "default", "max_tokens": 50, "temperature": 0, "messages": CAPITAL, "stream": True}
        answer = self.service.request("POST", "/v1/messages", body)
        self.assertEqual("text/event-stream", answer.headers["content-type"])
        text = answer.body.decode()
        self.assertNotIn("[DONE]", text)
        names = []
        for event in text.strip().split("\n\n"):
            name, data = event.split("\n")
            names.append(name.removeprefix("event: "))
            self.assertEqual(names[-1], json.loads(data.removeprefix("data: "))["type"])
        self.assertEqual(["message_start", "content_block_start"], names[:2])
        self.assertEqual({"content_block_delta"}, set(names[2:-3]))
        self.assertEqual(["content_block_stop", "message_delta", "message_stop"], names[-3:])

    # --- Prompts ---

    def test_count_tokens(self):
        options = {"model": "default", "messages": CAPITAL, "system": "Be brief."}
        count = self.client.messages.count_tokens(**options).input_tokens
        self.assertEqual(count, prompt_tokens(self.create(system="Be brief.")))
        without = self.client.messages.count_tokens(model="default", messages=CAPITAL).input_tokens
        self.assertLess(without, count)
        tools = [{"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}]
        self.assertGreater(self.client.messages.count_tokens(**options, tools=tools).input_tokens, count)

    def test_system_shapes_are_the_same_prompt(self):
        """One text, whatever its shape; the block that changes with every request is no part of it."""
        def count(system):
            return self.client.messages.count_tokens(model="default", messages=CAPITAL, system=system).input_tokens
        block = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
        billing = {"type": "text", "text": "x-anthropic-billing-header: cch=123;"}
        self.assertEqual(count("Be brief."), count([block]))
        self.assertEqual(count("Be brief."), count([billing, block]))

    def test_odd_places_of_system_messages(self):
        user, reply = CAPITAL[0], {"role": "assistant", "content": [{"type": "text", "text": "Paris."}]}
        late = {"role": "system", "content": "Be brief."}
        for messages in ([user, late], [user, reply, late, user], [late, user], [late]):
            with self.subTest(messages=messages):
                message = self.create(messages=messages, system=[{"type": "text", "text": "You are helpful."}])
                self.assertTrue(text_of(message).strip())

    def test_thinking(self):
        shown = self.create(thinking={"type": "enabled", "budget_tokens": 150})
        self.assertEqual(["thinking", "text"], [block.type for block in shown.content])
        self.assertTrue(shown.content[0].thinking and shown.content[0].signature)
        self.assertIn("Paris", text_of(shown))
        hidden = self.create()
        self.assertEqual(["text"], [block.type for block in hidden.content])
        # What the model thought may come back as it was.
        again = self.create(messages=[*CAPITAL, {"role": "assistant", "content": shown.content},
                                      {"role": "user", "content": "What is the capital of Italy?"}])
        self.assertIn("Rome", text_of(again))

    def test_prefill_is_continued(self):
        begun = {"role": "assistant", "content": "The capital of France"}
        message = self.create(messages=[*CAPITAL, begun])
        self.assertIn("Paris", text_of(message))
        self.assertFalse(text_of(message).startswith("The capital"))

    def test_the_request_of_a_coding_agent(self):
        """As Claude Code sends it: many fields that mean nothing here, a system message inside the chat."""
        cached = {"cache_control": {"type": "ephemeral"}}
        body = {
            "model": "default", "max_tokens": 600, "temperature": 0, "stream": True,
            "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197; cch=0f3a1;"},
                       {"type": "text", "text": "You are an agent.", **cached},
                       {"type": "text", "text": "Use tools.", **cached}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": WEATHER[0]["content"], **cached}]},
                         {"role": "system", "content": "Today is Monday."}],
            "tools": [{**each, **cached, "eager_input_streaming": True} for each in TOOLS],
            "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "metadata": {"user_id": "u"}, "service_tier": "auto", "speed": None,
        }
        headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "a-2025-01-01,b-2025-02-02"}
        answer = self.service.request("POST", "/v1/messages?beta=true", body, headers=headers)
        self.assertEqual(200, answer.status, answer)
        events = [json.loads(line[6:]) for line in answer.body.decode().splitlines() if line.startswith("data: ")]
        self.assertEqual("message_stop", events[-1]["type"])
        blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
        self.assertEqual("thinking", blocks[0]["type"])
        self.assertEqual(["get_weather"], [block["name"] for block in blocks if block["type"] == "tool_use"])
        self.assertIn("x-tandem-ignored", answer.headers)

    # --- Tools ---

    def check_call(self, message):
        self.assertEqual("tool_use", message.stop_reason)
        call = message.content[-1]
        self.assertEqual(("tool_use", "get_weather", {"city": "Oslo"}), (call.type, call.name, call.input))
        self.assertRegex(call.id, r"^[A-Za-z0-9_-]+$")
        return call

    def test_tool_round_trip(self):
        for create in (self.create, lambda **options: self.stream(**options)[0]):
            for thinking in ({}, {"thinking": {"type": "enabled", "budget_tokens": 150}}):
                with self.subTest(create=create, thinking=thinking):
                    asked = create(messages=WEATHER, tools=TOOLS, **thinking)
                    call = self.check_call(asked)
                    self.assertEqual("thinking" if thinking else "tool_use", asked.content[0].type)
                    result = {"type": "tool_result", "tool_use_id": call.id, "content": '{"temperature": 7}'}
                    answer = create(messages=[*WEATHER, {"role": "assistant", "content": asked.content},
                                              {"role": "user", "content": [result]}], tools=TOOLS, **thinking)
                    self.assertEqual("end_turn", answer.stop_reason)
                    self.assertTrue(text_of(answer).strip())

    def test_tool_result_shapes_are_the_same_prompt(self):
        def count(**result):
            call = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Oslo"}}
            block = {"type": "tool_result", "tool_use_id": "toolu_1", **result}
            return self.client.messages.count_tokens(model="default", tools=TOOLS, messages=[
                *WEATHER, {"role": "assistant", "content": [call]}, {"role": "user", "content": [block]}]).input_tokens
        self.assertEqual(count(content="rain"), count(content=[{"type": "text", "text": "rain"}]))
        self.assertGreater(count(content="rain", is_error=True), count(content="rain"))

    def test_tool_choice(self):
        self.check_call(self.create(messages=WEATHER, tools=TOOLS, tool_choice={"type": "any"}))
        named = self.create(messages=WEATHER, tools=TOOLS, tool_choice={"type": "tool", "name": "find_room"})
        self.assertEqual(["find_room"], [block.name for block in named.content if block.type == "tool_use"])
        none = self.create(messages=WEATHER, tools=TOOLS, tool_choice={"type": "none"})
        self.assertEqual(["text"], [block.type for block in none.content])
        single = self.create(messages=WEATHER, tools=TOOLS,
                             tool_choice={"type": "any", "disable_parallel_tool_use": True})
        self.assertEqual(1, sum(block.type == "tool_use" for block in single.content))

    def test_structured_output(self):
        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
                  "additionalProperties": False}
        message = self.create(output_config={"format": {"type": "json_schema", "schema": schema}})
        self.assertEqual(["city"], list(json.loads(text_of(message))))
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.create(output_config={"format": {"type": "json_schema",
                                                  "schema": {"properties": {"a": {"not": {"type": "null"}}}}}})
        self.assertIn("output_config.format.schema", caught.exception.api_message)

    # --- Errors ---

    def test_errors_are_the_sdks_types(self):
        image = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
        cases = [
            (anthropic.NotFoundError, "not_found_error", {"model": "no-such-model"}),
            (anthropic.BadRequestError, "invalid_request_error", {"max_tokens": 0}),
            (anthropic.BadRequestError, "invalid_request_error", {"messages": []}),
            (anthropic.BadRequestError, "invalid_request_error", {"extra_body": {"temperature": 1.5}}),
            (anthropic.BadRequestError, "invalid_request_error", {"messages": [{"role": "user", "content": [image]}]}),
            (anthropic.BadRequestError, "invalid_request_error",
             {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
        ]
        for kind, name, options in cases:
            with self.subTest(options=options), self.assertRaises(kind) as caught:
                self.create(**options)
            self.assertEqual(("error", name), (caught.exception.body["type"], caught.exception.type))
            self.assertTrue(caught.exception.error_code)
            self.assertEqual(caught.exception.body["request_id"], caught.exception.request_id)
        with self.assertRaises(anthropic.AuthenticationError) as caught:
            self.sdk(api_key="sk-wrong").messages.create(**self.options({}))
        self.assertEqual("authentication_error", caught.exception.type)

    def test_error_names_the_clients_field(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.create(messages=[*CAPITAL, {"role": "user", "content": [{"type": "text", "text": "x"},
                                                                         {"type": "image"}]}])
        self.assertEqual("messages[1].content[1].type", caught.exception.body["error"]["details"]["param"])

    def test_context_length(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.create(messages=[{"role": "user", "content": "word " * 20000}])
        self.assertIn("prompt is too long", caught.exception.api_message)
        self.assertIn("4096", caught.exception.api_message)


@unittest.skipUnless(CODER.exists(), f"{CODER.name} is not there (tools/fetch_models)")
class CoderTest(unittest.TestCase):
    """A real model of another family: it writes its calls as JSON, in hermes tags only when it must call."""

    def test_tool_round_trip(self):
        with support.Service(models=[("coder", CODER), ("tiny", support.TINY)]) as service:
            client = anthropic.Anthropic(base_url=service.base, api_key=service.key, max_retries=0, timeout=120)
            for choice in ("auto", "any"):
                options = {"model": "coder", "max_tokens": 200, "tools": TOOLS, "tool_choice": {"type": choice},
                           "extra_body": {"temperature": 0}}
                whole = client.messages.create(messages=WEATHER, **options)
                with client.messages.stream(messages=WEATHER, **options) as stream:
                    streamed = stream.get_final_message()
                self.assertEqual("tool_use", whole.stop_reason)
                calls = [[(block.name, block.input) for block in message.content if block.type == "tool_use"]
                         for message in (whole, streamed)]
                self.assertEqual(calls[0], calls[1])
                name, arguments = calls[0][0]
                self.assertEqual(("get_weather", "Oslo"), (name, arguments["city"]))
                # What such a small model makes of a result is its own affair: it must read it, and be heard.
                result = {"type": "tool_result", "tool_use_id": whole.content[-1].id, "content": '{"temperature": 7}'}
                answer = client.messages.create(
                    messages=[*WEATHER, {"role": "assistant", "content": whole.content},
                              {"role": "user", "content": [result]}],
                    **{**options, "tool_choice": {"type": "none"}, "max_tokens": 60})
                self.assertTrue(text_of(answer).strip())
                bare = client.messages.count_tokens(model="coder", messages=WEATHER).input_tokens
                self.assertGreater(prompt_tokens(answer), bare + 20)


if __name__ == "__main__":
    support.main()
