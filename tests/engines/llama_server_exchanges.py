"""What is asked of a real llama-server; every function returns the entries of one fixture file."""
import json
import pathlib
import re
import time

import exchange
import peer_process
import questions
from questions import user

PLAIN = ["--ctx-size", "4096", "--parallel", "2", "--threads", "2", "--metrics", "--slots", "--no-webui"]


ADDRESS_BYTES_MAX = 2 << 30  # of an engine that is to run out of memory
SETTINGS = re.compile(r'"generation_settings":\{.*?\},"prompt":')


class Recording:
    """Named exchanges with one started engine."""

    def __init__(self, peer, prefix=""):
        self.peer = peer
        self.prefix = prefix
        self.entries = []

    def __call__(self, name, method, path, body=None, **options):
        made = exchange.exchange(self.peer.port, method, path, body, **options)
        entry = peer_process.redacted({"name": self.prefix + name, **made}, self.peer)
        if name != "completion_stream":  # every last event repeats some 2 kB of settings: one is enough
            entry["chunks"] = [SETTINGS.sub('"generation_settings":{},"prompt":', chunk) for chunk in entry["chunks"]]
        self.entries.append(entry)
        return entry


def process_entry(name, peer, lines=12, pattern=None):
    """The end of a process: how, and the lines that say why."""
    code = peer.wait_exit(120)
    output = [line for line in peer.output().splitlines() if line.strip()]
    if pattern:
        output = [line for line in output if re.search(pattern, line)]
    return {"name": name, "process": {"arguments": peer_process.redacted(peer.arguments, peer), "exit": code,
                                      "output": output[-lines:]}}


def startup_lines(peer, pattern, name="start_log", lines=80):
    found = [line for line in peer.output().splitlines() if re.search(pattern, line)]
    return {"name": name, "process": {"arguments": peer.arguments, "exit": None, "output": found[:lines]}}


def prompt_ids(ask, name, messages, **extra):
    """Token ids of a rendered chat, as the engine itself makes them."""
    rendered = exchange.json_of(ask(f"template_{name}", "POST", "/apply-template", {"messages": messages, **extra}))
    tokens = ask(f"tokenize_{name}", "POST", "/tokenize",
                 {"content": rendered["prompt"], "add_special": False, "parse_special": True})
    return exchange.json_of(tokens)["tokens"]


def loading(model):
    """Answers of an engine that loads; the file should be a large one."""
    with peer_process.Peer("llama-server", model, PLAIN) as peer:
        ask = Recording(peer, "loading_")
        seen = []

        def during(answer):
            if not seen:
                seen.append(answer)
                ask("health", "GET", "/health")
                ask("models", "GET", "/v1/models")
                ask("props", "GET", "/props")
                ask("completion", "POST", "/completion", {"prompt": "a", "n_predict": 1})
        peer.wait_ready(during)
        return [entry for entry in ask.entries if entry["status"] == 503 or entry["name"] != "loading_health"]


def facts(ask):
    """What the engine says of itself."""
    ask("health", "GET", "/health")
    ask("models", "GET", "/v1/models")
    ask("props", "GET", "/props")
    ask("version", "GET", "/version")
    ask("unknown_path", "GET", "/nothing")
    ask("slots", "GET", "/slots")
    ask("tokenize_special", "POST", "/tokenize", {"content": "<|im_start|>user\nHi<|im_end|>", "with_pieces": True})
    ask("tokenize_plain", "POST", "/tokenize", {"content": "<|im_start|>user", "parse_special": False, "with_pieces": True})
    ask("detokenize", "POST", "/detokenize", {"tokens": [1, 2, 3]})
    ask("detokenize_out_of_range", "POST", "/detokenize", {"tokens": [99999999]})
    ask("template_late_system", "POST", "/apply-template", {"messages": questions.LATE_SYSTEM})
    ask("template_developer", "POST", "/apply-template", {"messages": [questions.message("developer", "Be brief."), user("Hi")]})
    ask("input_tokens", "POST", "/v1/chat/completions/input_tokens", {"messages": [user(questions.CAPITAL)]})


def completions(ask):
    """Raw completions of token ids, which the relay lives on."""
    thinking = prompt_ids(ask, "title", [user(questions.TITLE)])
    short = prompt_ids(ask, "capital_no_thinking", [user(questions.CAPITAL)], chat_template_kwargs=questions.NO_THINKING)
    tools = prompt_ids(ask, "tools", [user(questions.WEATHER)], tools=questions.TOOLS,
                       chat_template_kwargs=questions.NO_THINKING)
    greedy = {"temperature": 0, "return_tokens": True, "cache_prompt": True, "stream": True}
    ask("completion_stream", "POST", "/completion", {**greedy, "prompt": short, "n_predict": 32})
    ask("completion_again", "POST", "/completion", {**greedy, "prompt": short, "n_predict": 32, "stream": False})
    ask("completion_thinking", "POST", "/completion", {**greedy, "prompt": thinking, "n_predict": 12})
    ask("completion_tools", "POST", "/completion", {**greedy, "prompt": tools, "n_predict": 60})
    ask("tokenize_call_marks", "POST", "/tokenize", {"content": "<tool_call></tool_call><think></think>", "with_pieces": True})
    ask("completion_stop_string", "POST", "/completion", {**greedy, "prompt": short, "n_predict": 32, "stop": ["Norway"]})
    ask("completion_progress", "POST", "/completion",
        {**greedy, "prompt": thinking, "n_predict": 2, "return_progress": True, "timings_per_token": True})
    ask("completion_logprobs", "POST", "/completion", {**greedy, "prompt": short, "n_predict": 2, "n_probs": 2})
    ask("completion_zero", "POST", "/completion", {**greedy, "prompt": short, "n_predict": 0})
    ask("completion_two", "POST", "/completion", {**greedy, "prompt": short, "n_predict": 2, "n_cmpl": 2, "stream": False})
    structured = prompt_ids(ask, "structured", [user("Give JSON with city and priority: Oslo, 3")],
                            chat_template_kwargs=questions.NO_THINKING)
    ask("completion_schema", "POST", "/completion",
        {**greedy, "prompt": structured, "n_predict": 40, "json_schema": questions.SCHEMA})
    ask("completion_grammar", "POST", "/completion", {**greedy, "prompt": short, "n_predict": 8, "grammar": 'root ::= "Oslo" | "Rome"'})
    ask("completion_grammar_lazy", "POST", "/completion", {
        **greedy, "prompt": tools, "n_predict": 40, "grammar_lazy": True, "grammar": 'root ::= "<tool_call>" [a-z]+',
        "preserved_tokens": ["<tool_call>"], "grammar_triggers": [{"type": 1, "value": "<tool_call>"}]})


def errors(ask):
    ids = [100, 101]
    ask("error_schema", "POST", "/completion", {"prompt": ids, "n_predict": 4, "json_schema": {"type": "nothing"}})
    ask("error_grammar", "POST", "/completion", {"prompt": ids, "n_predict": 4, "grammar": "root ::= ("})
    ask("error_grammar_stream", "POST", "/completion", {"prompt": ids, "n_predict": 4, "grammar": "root ::= (", "stream": True})
    ask("error_token_id", "POST", "/completion", {"prompt": [99999999], "n_predict": 4})
    ask("error_no_prompt", "POST", "/completion", {"n_predict": 4})
    ask("error_json", "POST", "/completion", b"{\"prompt\": [1, 2")
    too_long = ask("error_too_long", "POST", "/completion", {"prompt": ids * 3000, "n_predict": 4, "stream": True})
    too_long["request"]["body"]["prompt"] = ids  # 6000 ids of no interest
    ask("error_chat_no_messages", "POST", "/v1/chat/completions", {"model": "x"})


def aborted(ask):
    """A client that goes away: the slot is free a moment later."""
    body = {"prompt": [100, 101], "n_predict": 4000, "stream": True, "ignore_eos": True, "temperature": 1, "seed": 1}
    ask("aborted", "POST", "/completion", body, abort_after=3)
    began = time.monotonic()
    while any(slot["is_processing"] for slot in exchange.json_of(exchange.exchange(ask.peer.port, "GET", "/slots"))):
        if time.monotonic() - began > 30:
            raise AssertionError("the slot of an aborted request stays busy")
        time.sleep(0.01)
    return time.monotonic() - began


def cut_prompt(entry):
    """The long prompt itself is of no interest."""
    entry["request"]["body"]["messages"] = [questions.message("system", questions.LONG_SYSTEM[:50])]


def chats(ask):
    for name, body in questions.chat_table("x"):
        ask("chat_" + name, "POST", "/v1/chat/completions", body)
    long = {"model": "x", "temperature": 0, "max_tokens": 4, "messages": [questions.message("system", questions.LONG_SYSTEM),
                                                                       user(questions.CAPITAL)]}
    for name in ("chat_prefix_first", "chat_prefix_again"):
        cut_prompt(ask(name, "POST", "/v1/chat/completions", long))


def metrics(ask):
    ask("metrics", "GET", "/metrics")


def serving(model):
    with peer_process.Peer("llama-server", model, PLAIN) as peer:
        peer.wait_ready()
        ask = Recording(peer)
        facts(ask)
        completions(ask)
        errors(ask)
        freed_s = aborted(ask)
        print(f"llama-server: the slot of an aborted request was free after {freed_s * 1000:.0f} ms")
        metrics(ask)
        log = startup_lines(peer, r"n_ctx|n_slots|KV|build|type_k|type_v|kv_unified|flash|n_parallel|main: |cache")
        return [*ask.entries, peer_process.redacted(log, peer)]


def chat(model):
    with peer_process.Peer("llama-server", model, PLAIN) as peer:
        peer.wait_ready()
        ask = Recording(peer)
        chats(ask)
        return ask.entries


def other_flags(model):
    """The same table with what a user may have set."""
    entries = []
    for prefix, flags in (("nojinja_", ["--no-jinja"]), ("noformat_", ["--reasoning-format", "none"]),
                          ("budget0_", ["--reasoning-budget", "0"])):
        try:
            with peer_process.Peer("llama-server", model, [*PLAIN, *flags]) as peer:
                peer.wait_ready()
                ask = Recording(peer, prefix)
                for name, body in questions.chat_table("x"):
                    if name in ("title", "title_no_thinking", "late_system", "tools_auto", "tools_none"):
                        ask("chat_" + name, "POST", "/v1/chat/completions", body)
                entries += ask.entries
        except AssertionError as error:
            entries.append({"name": prefix + "start", "process": {"arguments": flags, "exit": 1, "output": str(error).splitlines()[-8:]}})
    return entries


def exits(model):
    entries = []
    with peer_process.Peer("llama-server", model, ["--no-such-flag", "1"]) as peer:
        entries.append(process_entry("exit_wrong_flag", peer))
    with peer_process.Peer("llama-server", model, PLAIN) as first:
        first.wait_ready()
        with peer_process.Peer("llama-server", model, PLAIN, port=first.port) as peer:
            entries.append(process_entry("exit_port_taken", peer))
    with peer_process.Peer("llama-server", model.parent / "missing.gguf", PLAIN) as peer:
        entries.append(process_entry("exit_no_model", peer))
    with peer_process.Peer("llama-server", pathlib.Path(__file__), PLAIN) as peer:
        entries.append(process_entry("exit_no_gguf", peer))
    with peer_process.Peer("llama-server", model, ["--ctx-size", "8000000", "--parallel", "1", "--fit", "off"],
                           address_bytes_max=ADDRESS_BYTES_MAX) as peer:
        entries.append(process_entry("exit_out_of_memory", peer, 8, r" E |terminate|what\(\)"))
    return entries


def parts(models):
    """{fixture name: what makes its entries}; models: 'tiny' and a 'large' one, files."""
    return {"serving": lambda: serving(models["tiny"]), "chat": lambda: chat(models["tiny"]),
            "flags": lambda: other_flags(models["tiny"]), "loading": lambda: loading(models["large"]),
            "exits": lambda: exits(models["tiny"])}


def show(entries):
    """For a reader at the terminal."""
    for entry in entries:
        if "process" in entry:
            print(entry["name"], entry["process"]["exit"], *entry["process"]["output"][-3:], sep=" | ")
        else:
            print(entry["name"], entry["status"], json.dumps(exchange.body_of(entry))[:160], sep=" | ")
