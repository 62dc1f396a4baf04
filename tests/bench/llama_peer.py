#!/usr/bin/env python3
"""llama.cpp through its Python package, for tests/bench/cpu: loads a file once, then runs on demand.

  llama_peer.py FILE THREADS PROMPT DECODE        each line on stdin runs once and prints a JSON line
"""
import ctypes
import json
import sys
import time

import llama_cpp as ll


class Peer:
    def __init__(self, path, threads, prompt, decode):
        ll.llama_log_set(QUIET, ctypes.c_void_p(0))
        ll.llama_backend_init()
        self.model = ll.llama_model_load_from_file(path.encode(), ll.llama_model_default_params())
        parameters = ll.llama_context_default_params()
        parameters.n_ctx = prompt + decode + 16
        parameters.n_batch = parameters.n_ubatch = 512
        parameters.n_threads = parameters.n_threads_batch = threads
        self.context = ll.llama_init_from_model(self.model, parameters)
        self.vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(self.model))
        self.prompt = prompt
        self.decode = decode

    def eval(self, tokens):
        array = (ll.llama_token * len(tokens))(*tokens)
        if ll.llama_decode(self.context, ll.llama_batch_get_one(array, len(tokens))) != 0:
            raise RuntimeError("llama_decode failed")

    def run(self):
        """The work of model_bench: the same ids, one prefill, then greedy steps."""
        ll.llama_memory_clear(ll.llama_get_memory(self.context), True)
        ids = [(i * 7919 + 13) % self.vocab for i in range(self.prompt)]
        start = time.perf_counter()
        for first in range(0, len(ids), 512):
            self.eval(ids[first:first + 512])
        ll.llama_get_logits_ith(self.context, -1)
        prefill_s = time.perf_counter() - start
        # Which token is fed does not change the work; finding the largest logit from Python would.
        start = time.perf_counter()
        for i in range(self.decode):
            self.eval([(i * 7919 + 13) % self.vocab])
            ll.llama_get_logits_ith(self.context, -1)
        decode_s = time.perf_counter() - start
        return {"prefill_tok_s": self.prompt / prefill_s, "decode_tok_s": self.decode / decode_s}


@ll.llama_log_callback
def QUIET(_level, _text, _data):
    pass


def main():
    path, threads, prompt, decode = sys.argv[1], *map(int, sys.argv[2:5])
    peer = Peer(path, threads, prompt, decode)
    peer.run()  # warm-up, as model_bench does
    info = ll.llama_print_system_info().decode()
    print(json.dumps({"system": info}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(peer.run()), flush=True)


if __name__ == "__main__":
    main()
