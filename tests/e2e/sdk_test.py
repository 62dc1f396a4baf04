#!/usr/bin/env python3
"""The official OpenAI SDK, unmodified, against the service: what it sends works, what it expects comes."""
import math
import unittest

import openai

import support

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
STORY = [{"role": "user", "content": "Tell a short story about Nora and a deer."}]


class SdkTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = support.Service()
        cls.addClassCleanup(cls.service.close)
        cls.service.start()
        cls.client = cls.service.sdk()

    def chat(self, **options):
        options = {"model": "default", "messages": QUESTION, "max_tokens": 200, "temperature": 0, **options}
        return self.client.chat.completions.create(**options)

    # --- Models ---

    def test_models(self):
        models = self.client.models.list().data
        self.assertEqual({"tiny", "tiny2"}, {model.id for model in models} & {"tiny", "tiny2"})
        self.assertEqual("tiny", self.client.models.retrieve("tiny").id)
        self.assertTrue(all(model.object == "model" and isinstance(model.created, int) for model in models))

    def test_names_and_aliases_answer_alike(self):
        texts = {name: self.chat(model=name, max_tokens=8).choices[0].message.content
                 for name in ("tiny", "default", "tiny-alias", "tiny2", "optional", "tiny2-alias")}
        self.assertEqual(1, len(set(texts.values())), texts)

    # --- Answers ---

    def test_answer_and_usage(self):
        answer = self.chat(max_tokens=600)  # a shorter answer would not think
        choice = answer.choices[0]
        self.assertEqual("chat.completion", answer.object)
        self.assertEqual("assistant", choice.message.role)
        self.assertEqual("stop", choice.finish_reason)
        self.assertIn("Paris", choice.message.content)
        # 17 tokens is what the template gives for this question (see tests/golden).
        self.assertEqual(17, answer.usage.prompt_tokens)
        self.assertGreater(answer.usage.completion_tokens, 5)
        self.assertEqual(answer.usage.prompt_tokens + answer.usage.completion_tokens, answer.usage.total_tokens)

    def test_length(self):
        for options in ({"max_tokens": 5}, {"max_tokens": openai.omit, "max_completion_tokens": 5}):
            answer = self.chat(**options)
            self.assertEqual("length", answer.choices[0].finish_reason)
            self.assertEqual(5, answer.usage.completion_tokens)

    def test_stream_equals_answer(self):
        whole = self.chat()
        text, finishes, usages, ids, roles = "", [], [], set(), []
        with self.chat(stream=True, stream_options={"include_usage": True}) as stream:
            for chunk in stream:
                ids.add((chunk.id, chunk.created, chunk.model, chunk.object))
                if chunk.usage is not None:
                    usages.append(chunk.usage)
                    self.assertEqual([], chunk.choices)
                for choice in chunk.choices:
                    roles.append(choice.delta.role)
                    text += choice.delta.content or ""
                    if choice.finish_reason:
                        finishes.append(choice.finish_reason)
        self.assertEqual(whole.choices[0].message.content, text)
        self.assertEqual(["stop"], finishes)
        self.assertEqual("assistant", roles[0])
        self.assertEqual(1, len(ids), ids)
        self.assertEqual([whole.usage.completion_tokens], [usage.completion_tokens for usage in usages])

    def test_stream_without_usage(self):
        with self.chat(stream=True, max_tokens=4) as stream:
            self.assertTrue(all(chunk.usage is None and chunk.choices for chunk in stream))

    def test_n(self):
        answer = self.chat(messages=STORY, n=3, temperature=1.0, seed=7, max_tokens=12)
        self.assertEqual([0, 1, 2], [choice.index for choice in answer.choices])
        self.assertEqual(36, answer.usage.completion_tokens)
        seen = {}
        with self.chat(n=2, stream=True, max_tokens=6) as stream:
            for chunk in stream:
                for choice in chunk.choices:
                    seen.setdefault(choice.index, []).append(choice.finish_reason)
        self.assertEqual({0, 1}, set(seen))
        self.assertTrue(all(reasons[-1] == "length" for reasons in seen.values()))

    # --- Stop ---

    def test_stop(self):
        whole = self.chat().choices[0].message.content
        word = whole.split()[-2]
        for stop in (word, [word, "never said"]):
            answer = self.chat(stop=stop).choices[0]
            self.assertEqual(whole[:whole.index(word)], answer.message.content)
            self.assertEqual("stop", answer.finish_reason)

    def test_stop_across_chunks(self):
        whole = self.chat(messages=STORY).choices[0].message.content
        middle = len(whole) // 2
        stop = whole[middle:middle + 9]  # spans several tokens
        text = ""
        with self.chat(messages=STORY, stop=[stop], stream=True) as stream:
            for chunk in stream:
                text += chunk.choices[0].delta.content or ""
        self.assertEqual(whole[:whole.index(stop)], text)

    # --- Sampling ---

    def test_seed(self):
        def story(seed):
            return self.chat(messages=STORY, temperature=1.0, top_p=0.95, seed=seed, max_tokens=60).choices[0].message.content
        self.assertEqual(story(11), story(11))
        self.assertGreater(len({story(seed) for seed in range(1, 6)}), 1)

    def test_seed_reproduces_beside_others(self):
        def story(_):
            return self.service.sdk().chat.completions.create(
                model="default", messages=STORY, temperature=1.0, seed=5, max_tokens=40).choices[0].message.content
        alone = story(0)
        self.assertEqual({alone}, set(support.in_threads(4, story)))

    def test_logit_bias(self):
        token = self.service.request("POST", "/tokenize", {"model": "tiny", "content": " Paris"}).json()["tokens"][0]
        answer = self.chat(logit_bias={str(token): 100}, max_tokens=4, logprobs=True)
        self.assertEqual(4, len(answer.choices[0].logprobs.content))
        self.assertEqual(1, len({entry.token for entry in answer.choices[0].logprobs.content}))

    # --- Log-probabilities ---

    def test_chat_logprobs(self):
        answer = self.chat(logprobs=True, top_logprobs=5, max_tokens=10)
        content = answer.choices[0].logprobs.content
        self.assertEqual(answer.usage.completion_tokens, len(content))
        for entry in content:
            self.assertLessEqual(entry.logprob, 0)
            self.assertEqual(5, len(entry.top_logprobs))
            values = [top.logprob for top in entry.top_logprobs]
            self.assertEqual(sorted(values, reverse=True), values)
            self.assertLessEqual(sum(math.exp(value) for value in values), 1.0001)
            self.assertEqual(entry.token, entry.top_logprobs[0].token)  # greedy
            self.assertEqual(entry.logprob, entry.top_logprobs[0].logprob)
            self.assertEqual(entry.token.encode(), bytes(entry.bytes))

    def test_logprobs_are_the_models_own(self):
        """Before temperature, filters and penalties: the same token has the same value under all of them."""
        plain = self.chat(logprobs=True, top_logprobs=3, max_tokens=1).choices[0].logprobs.content[0]
        warm = self.chat(logprobs=True, top_logprobs=3, max_tokens=1, temperature=1.7, top_p=0.5, seed=3,
                         presence_penalty=1.5).choices[0].logprobs.content[0]
        for a, b in zip(plain.top_logprobs, warm.top_logprobs):
            self.assertEqual(a.token, b.token)
            self.assertAlmostEqual(a.logprob, b.logprob, places=5)

    def test_stream_logprobs(self):
        count = 0
        with self.chat(messages=STORY, logprobs=True, top_logprobs=2, max_tokens=9, stream=True) as stream:
            for chunk in stream:
                for choice in chunk.choices:
                    if choice.logprobs and choice.logprobs.content:
                        count += len(choice.logprobs.content)
        self.assertEqual(9, count)

    # --- Completions ---

    def completion(self, **options):
        options = {"model": "default", "prompt": "The capital of France is", "max_tokens": 6, "temperature": 0,
                   **options}
        return self.client.completions.create(**options)

    def test_completion_forms(self):
        text = self.completion()
        self.assertEqual("text_completion", text.object)
        ids = self.service.request("POST", "/tokenize", {"model": "default", "content": "The capital of France is",
                                                         "add_special": True}).json()["tokens"]
        by_ids = self.completion(prompt=ids)
        self.assertEqual(text.choices[0].text, by_ids.choices[0].text)
        self.assertEqual(text.usage.prompt_tokens, by_ids.usage.prompt_tokens)
        listed = self.completion(prompt=["The capital of France is", "18 + 73 ="])
        self.assertEqual([0, 1], [choice.index for choice in listed.choices])
        self.assertEqual(text.choices[0].text, listed.choices[0].text)

    def test_completion_echo_and_logprobs(self):
        answer = self.completion(echo=True, logprobs=3, max_tokens=4)
        choice = answer.choices[0]
        self.assertTrue(choice.text.startswith("The capital of France is"))
        logprobs = choice.logprobs
        total = answer.usage.prompt_tokens + answer.usage.completion_tokens
        self.assertEqual([total] * 4, [len(logprobs.tokens), len(logprobs.token_logprobs), len(logprobs.top_logprobs),
                                       len(logprobs.text_offset)])
        self.assertIsNone(logprobs.token_logprobs[0])
        self.assertTrue(all(value <= 0 for value in logprobs.token_logprobs[1:]))
        self.assertEqual(choice.text, "".join(logprobs.tokens))

    def test_completion_stream_gives_an_event_a_token(self):
        chunks = []
        with self.completion(stream=True, max_tokens=20, extra_body={"ignore_eos": True},
                             stop=["no such text at all"]) as stream:
            chunks = [chunk for chunk in stream if chunk.choices]
        tokens = [chunk for chunk in chunks if chunk.choices[0].finish_reason is None]
        self.assertGreaterEqual(len(chunks), 20)
        self.assertLessEqual(len(tokens), 21)

    def test_ignore_eos(self):
        answer = self.completion(max_tokens=300, extra_body={"ignore_eos": True})
        self.assertEqual((300, "length"), (answer.usage.completion_tokens, answer.choices[0].finish_reason))

    # --- Errors ---

    def test_errors_are_the_sdks_types(self):
        cases = [
            (openai.NotFoundError, {"model": "no-such-model"}),
            (openai.BadRequestError, {"temperature": -1}),
            (openai.BadRequestError, {"messages": []}),
            (openai.BadRequestError, {"max_tokens": 0}),
            (openai.BadRequestError, {"extra_body": {"top_p": "high"}}),
            (openai.BadRequestError, {"extra_body": {"messages": [{"role": "user", "content": 5}]}}),
        ]
        for kind, options in cases:
            with self.subTest(options=options), self.assertRaises(kind) as caught:
                self.chat(**options)
            self.assertTrue(caught.exception.body["message"])
        with self.assertRaises(openai.AuthenticationError):
            self.service.sdk(api_key="sk-wrong").models.list()

    def test_context_length(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(messages=[{"role": "user", "content": "word " * 20000}])
        self.assertEqual("context_length_exceeded", caught.exception.code)
        self.assertIn("4096", str(caught.exception))

    def test_error_carries_the_fields_path(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(extra_body={"messages": [*QUESTION, {"role": "user", "content": {"no": "text"}}]})
        self.assertTrue(caught.exception.param.startswith("messages[1].content"), caught.exception.param)

    def test_request_id(self):
        raw = self.client.chat.completions.with_raw_response.create(model="default", messages=QUESTION, max_tokens=1)
        self.assertTrue(raw.headers["x-request-id"])


if __name__ == "__main__":
    support.main()
