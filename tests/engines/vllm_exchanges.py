"""What is asked of a real vLLM (on the processor); every function returns the entries of one fixture file."""
import os
import signal
import socket
import time

import exchange
import peer_process
import questions
from llama_server_exchanges import Recording, cut_prompt, process_entry, startup_lines
from questions import user

PLAIN = ["--enforce-eager", "--max-model-len", "4096", "--max-num-seqs", "4", "--served-model-name", "tiny"]
PARSERS = ["--reasoning-parser", "qwen3", "--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder"]
METRICS_USED = ("num_requests_running", "num_requests_waiting", "kv_cache_usage", "prefix_cache_queries_total", "prefix_cache_hits_total",
                "prompt_tokens_total", "generation_tokens_total", "request_success_total", "num_preemptions_total",
                "cache_config_info", "spec_decode", "time_to_first_token_seconds_sum", "time_to_first_token_seconds_count",
                "inter_token_latency_seconds_sum", "inter_token_latency_seconds_count", "process_resident_memory_bytes")


def metrics(ask, name="metrics", used_lines=METRICS_USED):
    """Cut to the lines that a client reads."""
    entry = ask(name, "GET", "/metrics")
    kept = [line for line in exchange.body_of(entry).splitlines() if any(used in line for used in used_lines)]
    entry["chunks"] = ["\n".join(kept) + "\n"]


def prompt_ids(ask, name, messages, **extra):
    answer = ask(f"tokenize_{name}", "POST", "/tokenize", {"model": "tiny", "messages": messages, "add_generation_prompt": True, **extra})
    return exchange.json_of(answer)["tokens"]


def facts(ask):
    ask("health", "GET", "/health")
    ask("version", "GET", "/version")
    ask("models", "GET", "/v1/models")
    ask("props", "GET", "/props")
    ask("load", "GET", "/load")
    ask("server_info", "GET", "/server_info")
    ask("unknown_path", "GET", "/nothing")
    ask("tokenize_special", "POST", "/tokenize", {"model": "tiny", "prompt": "<|im_start|>user\nHi<|im_end|>",
                                                  "add_special_tokens": False, "return_token_strs": True})
    ask("tokenize_plain", "POST", "/tokenize", {"model": "tiny", "prompt": "Hi", "add_special_tokens": False})
    ask("detokenize", "POST", "/detokenize", {"model": "tiny", "tokens": [1, 2, 3]})
    ask("detokenize_out_of_range", "POST", "/detokenize", {"model": "tiny", "tokens": [99999999]})
    ask("tokenize_late_system", "POST", "/tokenize", {"model": "tiny", "messages": questions.LATE_SYSTEM})
    ask("render", "POST", "/v1/chat/completions/render", {"model": "tiny", "messages": [user(questions.CAPITAL)]})


def completions(ask):
    """Raw completions of token ids."""
    thinking = prompt_ids(ask, "title", [user(questions.TITLE)])
    short = prompt_ids(ask, "capital_no_thinking", [user(questions.CAPITAL)], chat_template_kwargs=questions.NO_THINKING)
    tools = prompt_ids(ask, "tools", [user(questions.WEATHER)], tools=questions.TOOLS, chat_template_kwargs=questions.NO_THINKING)
    base = {"model": "tiny", "temperature": 0, "skip_special_tokens": False, "spaces_between_special_tokens": False,
            "return_token_ids": True}
    stream = {**base, "stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    path = "/v1/completions"
    ask("completion_stream", "POST", path, {**stream, "prompt": short, "max_tokens": 32})
    ask("completion_whole", "POST", path, {**base, "prompt": short, "max_tokens": 32})
    ask("completion_thinking", "POST", path, {**stream, "prompt": thinking, "max_tokens": 12})
    ask("completion_tools", "POST", path, {**stream, "prompt": tools, "max_tokens": 60})
    ask("completion_tools_skipped", "POST", path, {**base, "prompt": tools, "max_tokens": 60, "skip_special_tokens": True})
    ask("completion_text_prompt", "POST", path, {**base, "prompt": "The capital of Norway is", "max_tokens": 4})
    ask("completion_stop_string", "POST", path, {**stream, "prompt": short, "max_tokens": 32, "stop": ["Norway"]})
    ask("completion_logprobs", "POST", path, {**stream, "prompt": short, "max_tokens": 2, "logprobs": 2})
    ask("completion_two", "POST", path, {**stream, "prompt": short, "max_tokens": 2, "n": 2})
    ask("completion_zero", "POST", path, {**base, "prompt": short, "max_tokens": 0})
    structured = prompt_ids(ask, "structured", [user("Give JSON with city and priority: Oslo, 3")],
                            chat_template_kwargs=questions.NO_THINKING)
    ask("completion_schema", "POST", path,
        {**stream, "prompt": structured, "max_tokens": 40, "structured_outputs": {"json": questions.SCHEMA}})
    ask("completion_guided_json", "POST", path, {**base, "prompt": structured, "max_tokens": 20, "guided_json": questions.SCHEMA})
    ask("completion_choice", "POST", path,
        {**stream, "prompt": short, "max_tokens": 8, "structured_outputs": {"choice": ["Oslo", "Rome"]}})
    ask("completion_grammar", "POST", path,
        {**stream, "prompt": short, "max_tokens": 8, "structured_outputs": {"grammar": 'root ::= "Oslo" | "Rome"'}})


def errors(ask):
    path = "/v1/completions"
    ids = [100, 101]
    base = {"model": "tiny", "max_tokens": 4}
    ask("error_schema", "POST", path, {**base, "prompt": ids, "structured_outputs": {"json": {"type": "nothing"}}})
    ask("error_schema_stream", "POST", path,
        {**base, "prompt": ids, "structured_outputs": {"json": {"type": "nothing"}}, "stream": True})
    ask("error_grammar", "POST", path, {**base, "prompt": ids, "structured_outputs": {"grammar": "root ::= ("}})
    ask("error_token_id", "POST", path, {**base, "prompt": [99999999]})
    ask("error_no_prompt", "POST", path, base)
    ask("error_json", "POST", path, b"{\"prompt\": [1, 2")
    too_long = ask("error_too_long", "POST", path, {**base, "prompt": ids * 3000, "stream": True})
    too_long["request"]["body"]["prompt"] = ids  # 6000 ids of no interest
    ask("error_model", "POST", path, {**base, "model": "nothing", "prompt": ids})
    ask("error_temperature", "POST", path, {**base, "prompt": ids, "temperature": -1})
    ask("error_chat_no_messages", "POST", "/v1/chat/completions", {"model": "tiny"})


def running(port):
    body = exchange.body_of(exchange.exchange(port, "GET", "/metrics"))
    return sum(float(line.rsplit(" ", 1)[1]) for line in body.splitlines() if line.startswith("vllm:num_requests_running"))


def aborted(ask):
    body = {"model": "tiny", "prompt": [100, 101], "max_tokens": 3000, "stream": True, "ignore_eos": True, "temperature": 1, "seed": 1,
            "return_token_ids": True}
    ask("aborted", "POST", "/v1/completions", body, abort_after=3)
    began = time.monotonic()
    while running(ask.peer.port):
        if time.monotonic() - began > 30:
            raise AssertionError("an aborted request goes on")
        time.sleep(0.05)
    return time.monotonic() - began


def chats(ask):
    for name, body in questions.chat_table("tiny"):
        ask("chat_" + name, "POST", "/v1/chat/completions", body)


def prefix_cache(ask):
    """Two equal prompts shorter than one block of this hybrid, then two longer ones; the counters after each pair."""
    for size, text in (("short", questions.TITLE), ("long", questions.LONG_SYSTEM)):
        body = {"model": "tiny", "temperature": 0, "max_tokens": 4, "messages": [questions.message("system", text), user(questions.CAPITAL)]}
        for when in ("first", "again"):
            entry = ask(f"prefix_{size}_{when}", "POST", "/v1/chat/completions", body)
            if size == "long":
                cut_prompt(entry)
        metrics(ask, f"metrics_after_{size}", ("prefix_cache",))


LOG = r"non-default args|KV cache|Maximum concurrency|block size|[Aa]ttention|dtype|prefix|max_model_len|Chunked|vLLM API server version"


def serving(model):
    entries, measured = [], {}
    with peer_process.Peer("vllm", model, PLAIN) as peer:
        refused = []
        measured["start_s"] = peer.wait_ready(refused.append)
        ask = Recording(peer)
        facts(ask)
        measured["memory_bytes"] = peer.memory_bytes()
        completions(ask)
        errors(ask)
        measured["abort_s"] = aborted(ask)
        prefix_cache(ask)
        metrics(ask)
        entries = [*ask.entries, peer_process.redacted(startup_lines(peer, LOG, lines=12), peer)]
    print("vllm:", measured, "answers before ready:", len(refused))
    return entries


def chat(model, prefix, flags):
    with peer_process.Peer("vllm", model, [*PLAIN, *flags]) as peer:
        peer.wait_ready()
        ask = Recording(peer, prefix)
        chats(ask)
        return ask.entries


def dead_engine(model):
    """Its engine process dies at the first request (speculation needs Triton), the server lives on."""
    flags = ["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 2}']
    with peer_process.Peer("vllm", model, [*PLAIN, *flags]) as peer:
        peer.wait_ready()
        ask = Recording(peer, "dead_")
        body = {"model": "tiny", "prompt": [100, 101], "max_tokens": 4}
        ask("health_before", "GET", "/health")
        ask("first", "POST", "/v1/completions", {**body, "stream": True})
        for name in ("second", "third"):
            if peer.child.poll() is None:
                try:
                    ask(name, "POST", "/v1/completions", body)
                    ask(name + "_chat", "POST", "/v1/chat/completions", {"model": "tiny", "messages": [user("Hi")], "max_tokens": 4})
                    ask(name + "_health", "GET", "/health")
                    ask(name + "_models", "GET", "/v1/models")
                except OSError as error:
                    ask.entries.append({"name": f"dead_{name}_refused", "process": {
                        "arguments": flags, "exit": peer.child.poll(), "output": [type(error).__name__]}})
        time.sleep(1)
        lines = [line for line in peer.output().splitlines() if "Error" in line or "died" in line or "dead" in line.lower()]
        ask.entries.append({"name": "dead_log", "process": {"arguments": flags, "exit": peer.child.poll(), "output": lines[-10:]}})
        return ask.entries


def killed_engine_process(model):
    """The engine's child is killed from outside."""
    with peer_process.Peer("vllm", model, PLAIN) as peer:
        peer.wait_ready()
        ask = Recording(peer, "killed_")
        others = [pid for pid in peer.group() if pid != peer.child.pid]
        sizes = {pid: peer_process.resident_bytes(pid) for pid in others}
        os.kill(max(sizes, key=sizes.get), signal.SIGKILL)
        for number in range(3):
            try:
                ask(f"health_{number}", "GET", "/health")
                ask(f"completion_{number}", "POST", "/v1/completions", {"model": "tiny", "prompt": [100, 101], "max_tokens": 4})
            except OSError as error:
                ask.entries.append({"name": f"killed_refused_{number}", "process": {
                    "arguments": peer.arguments, "exit": peer.child.poll(), "output": [type(error).__name__]}})
            time.sleep(1)
        ask.entries.append(process_entry("killed_end", peer, 6, "Error|dead|died|Shutting|shut"))
        return ask.entries


def exits(model):
    entries = []
    with peer_process.Peer("vllm", model, ["--no-such-flag", "1"]) as peer:
        entries.append(process_entry("exit_wrong_flag", peer))
    with peer_process.Peer("vllm", model, [*PLAIN, "--tool-call-parser", "no_such_parser", "--enable-auto-tool-choice"]) as peer:
        entries.append(process_entry("exit_wrong_parser", peer))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with peer_process.Peer("vllm", model, PLAIN, port=taken.getsockname()[1]) as peer:
            entries.append(process_entry("exit_port_taken", peer, 6, "Error|error|address"))
    with peer_process.Peer("vllm", model.parent / "missing", PLAIN) as peer:
        entries.append(process_entry("exit_no_model", peer, 6, "Error|error"))
    # More cache than the machine has memory: it warns, is killed before it serves, or refuses by its own arithmetic.
    with peer_process.Peer("vllm", model, PLAIN, extra_environment={"VLLM_CPU_KVCACHE_SPACE": "4000"}) as peer:
        entries.append(process_entry("exit_out_of_memory", peer, 8, "Error|error|memory"))
    return [peer_process.redacted(entry, peer) for entry in entries]


def parts(models):
    """{fixture name: what makes its entries}; models: 'tiny', a folder."""
    tiny = models["tiny"]
    return {"serving": lambda: serving(tiny), "chat-plain": lambda: chat(tiny, "plain_", []),
            "chat-parsers": lambda: chat(tiny, "parsers_", PARSERS), "dead": lambda: dead_engine(tiny),
            "killed": lambda: killed_engine_process(tiny), "exits": lambda: exits(tiny)}
