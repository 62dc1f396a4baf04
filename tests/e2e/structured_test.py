#!/usr/bin/env python3
"""Structured answers and forced calls on real models at temperature 1, judged by Python's json and jsonschema.

  structured_test.py            the tiny hybrid
  structured_test.py --long     every model that is there, 200 answers each; --only NAME,... picks some
"""
import collections
import concurrent.futures
import itertools
import json
import re
import sys
import threading
import time
import unittest

import support

try:
    import jsonschema
except ImportError:
    print("skipped: jsonschema is not installed (tools/python_env test makes the environment)")
    sys.exit(77)

import structured_cases as cases
from sanitizer_test import message_of, user

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
# name, file, does it think, the syntax of its calls
MODELS = [("tiny", support.TINY, True, "qwen-xml"),
          ("smollm2-135m", support.SMOLLM, False, None),
          ("qwen2.5-coder-0.5b", support.CACHE / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", False, "hermes"),
          ("qwen2.5-coder-1.5b", support.CACHE / "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", False, "hermes")]
ROOMY = 120
LEAST = re.compile(r"shortest answer that is asked for has (\d+) tokens")
LEAST_THINKING = re.compile(r"shortest answer has (\d+) tokens and (\d+) to end the thought")
REQUEST_S = 600
AT_ONCE = 4
REPEATS = 20


def validator(schema):
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)


def fault_of(text, schema):
    """What Python has against an answer; empty: nothing."""
    try:
        value = json.loads(text)
    except (TypeError, ValueError) as error:
        return f"not JSON ({error})"
    error = next(validator(schema).iter_errors(value), None)
    return f"invalid: {error.message}" if error else ""


def thinking(on):
    return {"chat_template_kwargs": {"enable_thinking": on}}


class Ask:
    """One structured request and the texts of its answer."""

    def __init__(self, service, model, seed, prompt, schema):
        self.service, self.model, self.seed, self.prompt, self.schema = service, model, seed, prompt, schema
        self.receipt = ""

    def form(self):
        return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": self.schema}}

    def post(self, path, body):
        answer = self.service.request("POST", path, {"model": self.model, "temperature": 1, **body}, timeout=REQUEST_S)
        self.receipt = answer.headers.get("x-tandem-receipt", "")
        if answer.status != 200:
            raise AssertionError(answer)
        return answer.json()

    def chat_body(self, **extra):
        return {"messages": [user(self.prompt)], "seed": self.seed, "response_format": self.form(), **extra}

    def chat(self, **extra):
        choices = self.post(CHAT, self.chat_body(**extra))["choices"]
        return [choice["message"]["content"] for choice in choices]

    def stream(self, **extra):
        stream = support.Stream(self.service, {"model": self.model, "temperature": 1, **self.chat_body(**extra)}, timeout=REQUEST_S)
        if stream.status != 200:
            raise AssertionError(stream.answer.read())
        self.receipt = stream.answer.getheader("x-tandem-receipt") or ""
        texts = collections.defaultdict(str)
        for event in stream.events():
            for choice in [] if event == "[DONE]" else event["choices"]:
                texts[choice["index"]] += choice["delta"].get("content") or ""
        return list(texts.values())

    def responses(self, **extra):
        form = {"type": "json_schema", "name": "answer", "strict": True, "schema": self.schema}
        body = self.post(RESPONSES, {"input": self.prompt, "text": {"format": form}, **extra})
        return ["".join(part["text"] for item in body["output"] if item["type"] == "message" for part in item["content"])]

    def messages(self, **extra):
        form = {"type": "json_schema", "schema": self.schema}
        body = self.post(MESSAGES, {"messages": [user(self.prompt)], "output_config": {"format": form}, **extra})
        return ["".join(block["text"] for block in body["content"] if block["type"] == "text")]

    def thinking_exactly(self, least):
        """As few tokens as a model that thinks may have; one that does not has just the answer's."""
        try:
            return self.chat(max_tokens=least, **thinking(True))
        except AssertionError as refusal:
            found = LEAST_THINKING.search(str(refusal))
            if not found or int(found[1]) != least:
                raise
            return self.chat(max_tokens=least + int(found[2]), **thinking(True))

    def least(self):
        """The shortest answer in tokens: a smaller limit is a 400 that names it."""
        answer = self.service.request("POST", CHAT, {"model": self.model, **self.chat_body(max_tokens=1)}, timeout=REQUEST_S)
        if answer.status == 200:
            return 1
        error = support.error_of(answer)
        found = LEAST.search(error["message"])
        if (answer.status, error["param"]) != (400, "max_tokens") or not found:
            raise AssertionError(answer)
        return int(found[1])


# Ten answers of each schema: a name, how it is asked. The thinking ones only differ where the model thinks.
WAYS = [("chat", lambda ask, least: ask.chat(max_tokens=ROOMY)),
        ("exact limit", lambda ask, least: ask.chat(max_tokens=least, **thinking(False))),
        ("streamed, limit + 5", lambda ask, least: ask.stream(max_tokens=least + 5)),
        ("two choices, limit + 20", lambda ask, least: ask.chat(max_tokens=least + 20, n=2)),
        ("thinking", lambda ask, least: ask.chat(max_tokens=ROOMY + least, **thinking(True))),
        ("thinking, streamed, tight", lambda ask, least: ask.stream(max_tokens=least + 12, **thinking(True))),
        ("thinking, exact limit", lambda ask, least: ask.thinking_exactly(least)),
        ("responses", lambda ask, least: ask.responses(max_output_tokens=least + 40)),
        ("messages", lambda ask, least: ask.messages(max_tokens=least + 40))]


class Structured:
    """The tests of one model; name, file, thinks and syntax are set by the classes below."""

    @classmethod
    def setUpClass(cls):
        if not cls.file.exists():
            raise unittest.SkipTest(f"{cls.file} is not there")
        cls.service = support.Service(models=[(cls.name, cls.file)])
        cls.addClassCleanup(cls.service.close)
        cls.service.start()

    def all_of(self, what, jobs):
        """Runs (label, work) pairs some at a time; work gives the faults of its answers, one for each, empty when it is good."""
        begin, lock, faults, answers = time.monotonic(), threading.Lock(), [], 0

        def run(job):
            nonlocal answers
            label, work = job
            try:
                found = work()
            except Exception as error:  # noqa: BLE001: one broken request is one fault
                found = [f"{type(error).__name__}: {error}"]
            with lock:
                answers += len(found)
                faults.extend(f"{label}: {fault}" for fault in found if fault)

        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(run, jobs))
        print(f"\n{self.name}: {what}: {answers - len(faults)} of {answers} in {time.monotonic() - begin:.1f} s", file=sys.stderr)
        self.assertEqual([], faults)
        return answers

    # --- Schemas ---

    def schema_job(self, name, prompt, schema, way, seed):
        def work():
            ask = Ask(self.service, self.name, seed, prompt, schema)
            texts = way[1](ask, self.least(name, prompt, schema))
            faults = [fault and f"{fault}; {text!r}" for text, fault in ((text, fault_of(text, schema)) for text in texts)]
            if "R31" in ask.receipt and not any(faults):
                faults[0] = f"receipt {ask.receipt}: {texts}"
            return faults
        return f"{name}, {way[0]}, seed {seed}", work

    def least(self, name, prompt, schema):
        with self.least_lock:
            if name not in self.leasts:
                self.leasts[name] = Ask(self.service, self.name, 0, prompt, schema).least()
            return self.leasts[name]

    def test_schemas(self):
        type(self).leasts, type(self).least_lock = {}, threading.Lock()
        self.assertEqual(20, len(cases.SCHEMAS))
        seeds = itertools.count(1)
        jobs = [self.schema_job(*case, way, next(seeds)) for case in cases.SCHEMAS for way in WAYS]
        self.assertEqual(200, self.all_of("schema answers", jobs))

    def test_a_limit_below_the_least_is_named(self):
        for name, prompt, schema in cases.SCHEMAS:
            least = Ask(self.service, self.name, 0, prompt, schema).least()
            if least == 1:
                continue
            body = Ask(self.service, self.name, 1, prompt, schema).chat_body(max_tokens=least - 1)
            answer = self.service.request("POST", CHAT, {"model": self.name, **body}, timeout=REQUEST_S)
            self.assertEqual(400, answer.status, (name, answer))
            self.assertEqual(str(least), LEAST.search(support.error_of(answer)["message"])[1])

    def test_json_objects(self):
        def job(seed):
            prompt = cases.OBJECT_PROMPTS[seed % len(cases.OBJECT_PROMPTS)]
            ask = Ask(self.service, self.name, seed, prompt, {"type": "object"})
            ask.form = lambda: {"type": "json_object"}

            def work():
                texts = (ask.stream if seed % 4 == 3 else ask.chat)(max_tokens=(16, 60, ROOMY)[seed % 3])
                return [f"receipt {ask.receipt}; {texts}" if "R31" in ask.receipt else fault and f"{fault}; {texts}"
                        for fault in [fault_of(text, {"type": "object"}) for text in texts]]
            return f"json_object, seed {seed}", work
        self.all_of("json_object", [job(seed) for seed in range(REPEATS)])

    # --- Calls ---

    def call_of(self, seed, choice, stream):
        body = {"model": self.name, "messages": [user(cases.CALL_PROMPTS[seed % len(cases.CALL_PROMPTS)])], "temperature": 1,
                "seed": seed, "tools": cases.TOOLS, "tool_choice": choice, "max_tokens": 200}
        if not stream:
            return message_of(self.service.request("POST", CHAT, body, timeout=REQUEST_S)).get("tool_calls") or []
        calls = {}
        for event in support.Stream(self.service, body, timeout=REQUEST_S).events():
            for choice_ in [] if event == "[DONE]" else event["choices"]:
                for delta in choice_["delta"].get("tool_calls") or []:
                    call = calls.setdefault(delta["index"], {"function": {"name": "", "arguments": ""}})
                    call["function"]["name"] += delta["function"].get("name") or ""
                    call["function"]["arguments"] += delta["function"].get("arguments") or ""
        return list(calls.values())

    def test_forced_calls(self):
        schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in cases.TOOLS}

        def job(seed, named):
            wanted = list(schemas)[seed % len(schemas)] if named else None
            choice = {"type": "function", "function": {"name": wanted}} if named else "required"

            def work():
                calls = self.call_of(seed, choice, stream=seed % 3 == 2)
                if not calls:
                    return ["no call"]
                found = [call["function"] for call in calls]
                faults = [fault_of(call["arguments"], schemas[call["name"]]) for call in found]
                faults += [f"{call['name']} was not asked for" for call in found if named and call["name"] != wanted]
                return ["; ".join(filter(None, faults)) and f"{faults} {found}"]
            return f"{'named' if named else 'required'}, seed {seed}", work
        if self.syntax:
            shown = json.loads(self.service.ctl("model", "show", self.name, "--json"))["profile"]["tool_syntax"]
            self.assertEqual(self.syntax, shown["value"])
        for named in (False, True):
            self.all_of("named calls" if named else "required calls", [job(seed, named) for seed in range(REPEATS)])


def make_classes(long, only):
    for name, file, thinks, syntax in MODELS:
        if name in only if only else long or name == "tiny":
            made = type(f"Structured_{name}", (Structured, unittest.TestCase), {
                "name": name, "file": file, "thinks": thinks, "syntax": syntax})
            globals()[made.__name__] = made


def take(flag, argument=False):
    """Removes a flag of ours from the arguments; its argument, or whether it was there."""
    if flag not in sys.argv:
        return ""
    at = sys.argv.index(flag)
    taken = sys.argv[at:at + 1 + argument]
    del sys.argv[at:at + 1 + argument]
    return taken[-1]


if __name__ == "__main__":
    make_classes(bool(take("--long")), [name for name in take("--only", argument=True).split(",") if name])
    support.main()
