#!/usr/bin/env python3
"""Makes tests/engines/fixtures/ again from real engines of others (tools/peer_llama_server, tools/peer_vllm).

  record.py llama-server [--model FILE] [--large FILE]      FILE: the tiny hybrid, and a large file that loads slowly
  record.py vllm --model FOLDER                             FOLDER: the tiny hybrid in the Hugging Face form
  --only PART    one fixture file only: a name as in the fixtures' folder, without its ending
  --show         prints a line for each exchange, writes nothing
Exit 77: the engine is not installed.
"""
import argparse
import pathlib
import sys

import exchange
import llama_server_exchanges
import peer_process
import vllm_exchanges

MODELS = pathlib.Path(peer_process.CACHE) / "tandem" / "models"
TINY = peer_process.ROOT / "tests" / "models" / "tiny-hybrid-q8_0.gguf"


def main():
    peer_process.end_on_sigterm()
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=("llama-server", "vllm"))
    parser.add_argument("--model", type=pathlib.Path, default=TINY)
    parser.add_argument("--large", type=pathlib.Path, default=MODELS / "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf")
    parser.add_argument("--only", default="")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    if peer_process.find(options.engine) is None:
        print(f"skipped: {options.engine} is not installed ({peer_process.TOOLS[options.engine].name} makes it)")
        sys.exit(77)
    module = llama_server_exchanges if options.engine == "llama-server" else vllm_exchanges
    parts = module.parts({"tiny": options.model.absolute(), "large": options.large.absolute()})
    for name in [options.only] if options.only else parts:
        entries = parts[name]()
        if options.show:
            llama_server_exchanges.show(entries)
            continue
        file = exchange.FIXTURES / options.engine / f"{name}.jsonl"
        exchange.save(file, entries)
        print(f"{file}: {len(entries)} exchanges, {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
