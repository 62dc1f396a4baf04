#!/usr/bin/env python3
"""The Responses interface through the official OpenAI SDK: answers, the order of a stream's events, and what is stored."""
import json
import unittest

import openai

import support

QUESTION = "What is the capital of France?"
PLAIN = {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}
THINKING = {"extra_body": {}, "max_output_tokens": 1500}  # a small limit would switch it off
WEATHER = "What is the weather in Oslo?"
# The events of an item, between response.in_progress and the end of the response.
MESSAGE = ["response.output_item.added", "response.content_part.added", "response.output_text.delta",
           "response.output_text.done", "response.content_part.done", "response.output_item.done"]
REASONING = [kind.replace("output_text", "reasoning_text") for kind in MESSAGE]
CALL = ["response.output_item.added", "response.function_call_arguments.delta",
        "response.function_call_arguments.done", "response.output_item.done"]


def tool(name, description, required, **properties):
    return {"type": "function", "name": name, "description": description, "strict": False,
            "parameters": {"type": "object", "required": [required],
                           "properties": {key: {"type": kind} for key, kind in properties.items()}}}


# The three tools of the test model's corpus.
TOOLS = [tool("get_weather", "Weather of a city", "city", city="string", unit="string"),
         tool("create_ticket", "Open a ticket", "item", item="string", priority="integer"),
         tool("find_room", "Find a free room", "day", day="string", seats="integer")]
BELONGINGS = {"type": "object", "additionalProperties": False, "required": ["name", "color", "count"],
              "properties": {"name": {"type": "string", "maxLength": 20}, "color": {"enum": ["black", "green", "red"]},
                             "count": {"type": "integer", "minimum": 0, "maximum": 100}}}


class ResponsesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = support.Service()
        cls.addClassCleanup(cls.service.close)
        cls.service.start()
        cls.client = cls.service.sdk()

    def create(self, **options):
        options = {"model": "default", "input": QUESTION, "max_output_tokens": 300, "temperature": 0,
                   **PLAIN, **options}
        return self.client.responses.create(**options)

    def refusal_of(self, call, kind=openai.NotFoundError):
        with self.assertRaises(kind) as caught:
            call()
        return caught.exception

    # --- Answers ---

    def test_answer(self):
        answer = self.create(instructions="Be brief.", metadata={"run": "e2e"})
        self.assertEqual(("response", "completed", "tiny"), (answer.object, answer.status, answer.model))
        self.assertIn("Paris", answer.output_text)
        self.assertIsNone(answer.error)
        self.assertIsNone(answer.incomplete_details)
        self.assertEqual("Be brief.", answer.instructions)
        self.assertEqual({"run": "e2e"}, answer.metadata)
        self.assertFalse(answer.store)
        message = answer.output[-1]
        self.assertEqual(("message", "assistant", "completed"), (message.type, message.role, message.status))
        self.assertGreater(answer.usage.input_tokens, 10)
        self.assertGreater(answer.usage.output_tokens, 3)
        self.assertEqual(answer.usage.input_tokens + answer.usage.output_tokens, answer.usage.total_tokens)

    def test_the_same_as_a_chat(self):
        chat = self.client.chat.completions.create(
            model="default", messages=[{"role": "user", "content": QUESTION}], max_tokens=300, temperature=0,
            **PLAIN)
        answer = self.create()
        self.assertEqual(chat.choices[0].message.content, answer.output_text)
        self.assertEqual(chat.usage.prompt_tokens, answer.usage.input_tokens)

    def test_length(self):
        answer = self.create(max_output_tokens=3)
        self.assertEqual("incomplete", answer.status)
        self.assertEqual("max_output_tokens", answer.incomplete_details.reason)
        self.assertEqual(3, answer.usage.output_tokens)
        with self.create(max_output_tokens=3, stream=True) as stream:
            self.assertEqual("response.incomplete", list(stream)[-1].type)

    # --- Streams ---

    def test_stream_in_order(self):
        whole = self.create()
        with self.create(stream=True) as stream:
            events = list(stream)
        self.assertEqual(list(range(len(events))), [event.sequence_number for event in events])
        self.assertEqual(["response.created", "response.in_progress", *MESSAGE, "response.completed"],
                         self.shape(events))
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        self.assertEqual(whole.output_text, text)
        done = next(event for event in events if event.type == "response.output_text.done")
        self.assertEqual(text, done.text)
        response = events[-1].response
        self.assertEqual(text, response.output_text)
        self.assertEqual(whole.usage.output_tokens, response.usage.output_tokens)
        self.assertEqual({response.id}, {event.response.id for event in events if hasattr(event, "response")})
        for event in events:
            if hasattr(event, "item_id"):
                self.assertEqual(response.output[event.output_index].id, event.item_id)

    def test_the_sdks_own_accumulator(self):
        with self.client.responses.stream(model="default", input=QUESTION, temperature=0, max_output_tokens=300,
                                          **PLAIN) as stream:
            seen = [event.type for event in stream]
            final = stream.get_final_response()
        self.assertIn("response.output_text.delta", seen)
        self.assertIn("Paris", final.output_text)

    def test_logprobs(self):
        answer = self.create(include=["message.output_text.logprobs"], top_logprobs=2)
        part = answer.output[-1].content[0]
        self.assertGreater(len(part.logprobs), 3)
        self.assertEqual(part.text, "".join(entry.token for entry in part.logprobs))
        self.assertTrue(all(entry.logprob <= 0 and len(entry.top_logprobs) == 2 for entry in part.logprobs))

    def shape(self, events):
        """Kinds of events, a run of the same as one."""
        kinds = [event.type for event in events]
        return [kind for at, kind in enumerate(kinds) if at == 0 or kind != kinds[at - 1]]

    # --- Thoughts ---

    def test_a_thought_is_an_item_of_its_own(self):
        for stream in (False, True):
            with self.subTest(stream=stream):
                if stream:
                    with self.create(**THINKING, stream=True) as events:
                        events = list(events)
                    self.assertEqual(["response.created", "response.in_progress", *REASONING, *MESSAGE,
                                      "response.completed"], self.shape(events))
                    answer = events[-1].response
                    thought = "".join(event.delta for event in events if event.type == "response.reasoning_text.delta")
                    self.assertEqual(thought, answer.output[0].content[0].text)
                else:
                    answer = self.create(**THINKING)
                self.assertEqual(["reasoning", "message"], [item.type for item in answer.output])
                self.assertIn("capital of France", answer.output[0].content[0].text)
                self.assertNotIn("think>", answer.output_text + answer.output[0].content[0].text)
                self.assertIn("Paris", answer.output_text)
                self.assertGreater(answer.usage.output_tokens_details.reasoning_tokens, 5)
        quiet = self.create(**THINKING, reasoning={"effort": "none"})
        self.assertEqual(["message"], [item.type for item in quiet.output])

    # --- Tools ---

    def check_call(self, answer, kinds):
        self.assertEqual("completed", answer.status)
        self.assertEqual(kinds, [item.type for item in answer.output])
        call = answer.output[-1]
        self.assertEqual(("get_weather", {"city": "Oslo"}), (call.name, json.loads(call.arguments)))
        self.assertTrue(call.call_id)
        return call

    def test_a_tool_round_trip(self):
        for thinking in (PLAIN, THINKING):
            kinds = ["function_call"] if thinking is PLAIN else ["reasoning", "function_call"]
            asked = self.create(input=WEATHER, tools=TOOLS, store=True, **thinking)
            call = self.check_call(asked, kinds)
            result = {"type": "function_call_output", "call_id": call.call_id, "output": '{"temperature": 7}'}
            after = self.create(input=[result], previous_response_id=asked.id, tools=TOOLS, **thinking)
            self.assertEqual("message", after.output[-1].type)
            self.assertTrue(after.output_text.strip())
            by_hand = self.create(input=[{"role": "user", "content": WEATHER}, *asked.output, result], tools=TOOLS,
                                  **thinking)
            self.assertEqual((after.output_text, after.usage.input_tokens),
                             (by_hand.output_text, by_hand.usage.input_tokens))

    def test_a_streamed_call(self):
        with self.create(input=WEATHER, tools=TOOLS, stream=True, **THINKING) as stream:
            events = list(stream)
        self.assertEqual(["response.created", "response.in_progress", *REASONING, *CALL, "response.completed"],
                         self.shape(events))
        call = self.check_call(events[-1].response, ["reasoning", "function_call"])
        done = next(event for event in events if event.type == "response.function_call_arguments.done")
        self.assertEqual((call.id, call.name, call.arguments), (done.item_id, done.name, done.arguments))

    def test_tool_choice(self):
        none = self.create(input=WEATHER, tools=TOOLS, tool_choice="none")
        self.assertEqual(["message"], [item.type for item in none.output])
        named = {"type": "function", "name": "create_ticket"}
        one = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "find_room"}]}
        for choice, name in (("required", "get_weather"), (named, "create_ticket"), (one, "find_room")):
            with self.subTest(choice=choice):
                answer = self.create(input=WEATHER, tools=TOOLS, tool_choice=choice)
                self.assertEqual([name], [item.name for item in answer.output if item.type == "function_call"])

    # --- Structured answers ---

    def test_text_format(self):
        form = {"type": "json_schema", "name": "belongings", "schema": BELONGINGS, "strict": True}
        for thinking in (PLAIN, THINKING):
            for seed in range(3):
                answer = self.create(input="Give JSON with name, color and count for: Tom owns 90 black cups.",
                                     text={"format": form}, temperature=1,
                                     **{**thinking, "extra_body": {**thinking["extra_body"], "seed": seed}})
                value = json.loads(answer.output_text)
                self.assertEqual({"name", "color", "count"}, set(value))
                self.assertIn(value["color"], BELONGINGS["properties"]["color"]["enum"])
                self.assertIn(value["count"], range(101))
        self.assertIsInstance(json.loads(self.create(input="Give JSON with name, color and count for: Tom owns 90 black cups.",
                                                     text={"format": {"type": "json_object"}}).output_text), dict)

    def test_a_schema_that_cannot_be_enforced(self):
        form = {"type": "json_schema", "name": "x", "schema": {"type": "object", "properties": {
            "a": {"type": "string", "contentEncoding": "base64", "unevaluatedItems": False}}}}
        error = self.refusal_of(lambda: self.create(text={"format": form}), openai.BadRequestError)
        self.assertTrue(error.param.startswith("text.format.schema"), error.param)

    # --- Stored responses ---

    def test_a_chain_of_stored_responses(self):
        first = self.create(store=True)
        self.assertTrue(first.store)
        self.assertEqual(first.output_text, self.client.responses.retrieve(first.id).output_text)
        second = self.create(input="18 + 73 = ?", previous_response_id=first.id, store=True)
        self.assertEqual(first.id, second.previous_response_id)
        items = [{"role": "user", "content": QUESTION}, *[item.model_dump() for item in first.output],
                 {"role": "user", "content": "18 + 73 = ?"}]
        by_hand = self.create(input=items)
        self.assertEqual(by_hand.output_text, second.output_text)
        self.assertEqual(by_hand.usage.input_tokens, second.usage.input_tokens)
        third = self.create(input="Good morning!", previous_response_id=second.id)
        self.assertGreater(third.usage.input_tokens, second.usage.input_tokens)
        self.assertFalse(third.store)
        self.client.responses.delete(first.id)
        # A later one holds the whole conversation.
        self.assertEqual(third.output_text, self.create(input="Good morning!",
                                                        previous_response_id=second.id).output_text)

    def test_a_stream_is_stored_too(self):
        with self.create(stream=True, store=True) as stream:
            response = list(stream)[-1].response
        self.assertEqual(response.model_dump(), self.client.responses.retrieve(response.id).model_dump())

    def test_not_stored_cannot_be_continued(self):
        answer = self.create()
        self.refusal_of(lambda: self.client.responses.retrieve(answer.id))
        error = self.refusal_of(lambda: self.create(previous_response_id=answer.id), openai.BadRequestError)
        self.assertEqual(("previous_response_not_found", "previous_response_id"), (error.code, error.param))

    def test_a_response_belongs_to_its_key(self):
        made = json.loads(self.service.ctl("key", "add", "other", "--scope", "inference", "--json"))
        other = self.service.sdk(api_key=made["key"])
        answer = self.create(store=True)
        self.refusal_of(lambda: other.responses.retrieve(answer.id))
        self.refusal_of(lambda: other.responses.delete(answer.id))
        self.refusal_of(lambda: other.responses.create(model="default", input="x",
                                                             previous_response_id=answer.id), openai.BadRequestError)
        self.assertEqual(answer.id, self.client.responses.retrieve(answer.id).id)
        self.client.responses.delete(answer.id)
        self.refusal_of(lambda: self.client.responses.retrieve(answer.id))
        self.refusal_of(lambda: self.client.responses.delete(answer.id))
        # What a key had stored goes with it.
        theirs = other.responses.create(model="default", input="Good morning!", max_output_tokens=5, store=True)
        self.service.ctl("key", "revoke", made["id"])
        self.assertEqual(404, self.service.request("GET", f"/v1/responses/{theirs.id}").status)

    def test_text_is_on_disk_only_when_asked_for(self):
        def files_hold(text):
            return any(text.encode() in file.read_bytes()
                       for file in (self.service.folder / "state").iterdir() if file.is_file())
        self.create(input="Repeat exactly: marmalade zeppelin one")
        answer = self.create(input="Repeat exactly: marmalade zeppelin two", store=True)
        self.client.responses.retrieve(answer.id)  # it is written when this comes back
        self.assertFalse(files_hold("marmalade zeppelin one"))
        self.assertTrue(files_hold("marmalade zeppelin two"))
        self.client.responses.delete(answer.id)
        self.assertFalse(files_hold("marmalade zeppelin two"))
        self.assertNotIn("marmalade", self.service.log.read_text("utf-8", "replace"))

    def test_stored_responses_survive_kill_9(self):
        answer = self.create(store=True)
        self.client.responses.retrieve(answer.id)
        self.service.daemon.kill()
        self.service.daemon.wait()
        self.service.start()
        self.assertEqual(answer.output_text, self.client.responses.retrieve(answer.id).output_text)

    # --- Refusals ---

    def test_refusals_name_the_field(self):
        picture = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"}
        cases = [
            ({"input": [{"role": "user", "content": [picture]}]}, "input[0].content[0].type"),
            ({"tools": [{"type": "function"}]}, "tools[0].name"),
            ({"temperature": 3}, "temperature"),
            ({"max_output_tokens": 0}, "max_output_tokens"),
            ({"input": "word " * 20000}, "input"),
            ({"extra_body": {"background": True}}, "background"),
        ]
        for options, param in cases:
            with self.subTest(param=param):
                error = self.refusal_of(lambda: self.create(**options), openai.BadRequestError)
                self.assertEqual(param, error.param)
                self.assertTrue(error.code)
        self.refusal_of(lambda: self.create(model="no-such-model"))


if __name__ == "__main__":
    support.main()
