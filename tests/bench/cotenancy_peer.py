#!/usr/bin/env python3
"""llama.cpp through its Python package, for tests/bench/cotenancy: one process, one model, work until told to stop.

  cotenancy_peer.py FILE THREADS     a line "PROMPT ANSWER" starts requests of that shape, one after the other; "stop"
                                     ends them after the current token and prints [[sent, [token times]], ...]
"""
import ctypes
import json
import sys
import threading
import time

import llama_cpp as ll

CONTEXT = 4096


@ll.llama_log_callback
def QUIET(_level, _text, _data):
    pass


class Peer:
    def __init__(self, path, threads):
        ll.llama_log_set(QUIET, ctypes.c_void_p(0))
        ll.llama_backend_init()
        self.model = ll.llama_model_load_from_file(path.encode(), ll.llama_model_default_params())
        parameters = ll.llama_context_default_params()
        parameters.n_ctx = CONTEXT
        parameters.n_batch = parameters.n_ubatch = 512
        parameters.n_threads = parameters.n_threads_batch = threads
        self.context = ll.llama_init_from_model(self.model, parameters)
        self.vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(self.model))
        self.stop = threading.Event()

    def eval(self, tokens):
        array = (ll.llama_token * len(tokens))(*tokens)
        if ll.llama_decode(self.context, ll.llama_batch_get_one(array, len(tokens))) != 0:
            raise RuntimeError("llama_decode failed")

    def ids(self, first, count):
        return [(i * 7919 + 13) % self.vocab for i in range(first, first + count)]

    def request(self, prompt, answer):
        """One prompt, then single tokens; which token is fed does not change the work."""
        ll.llama_memory_clear(ll.llama_get_memory(self.context), True)
        sent, times = time.monotonic(), []
        for first in range(0, prompt, 512):
            self.eval(self.ids(first, min(512, prompt - first)))
            if self.stop.is_set():
                return [sent, times]
        ll.llama_get_logits_ith(self.context, -1)
        times.append(time.monotonic())
        for i in range(1, answer):
            if self.stop.is_set():
                break
            self.eval(self.ids(i, 1))
            ll.llama_get_logits_ith(self.context, -1)
            times.append(time.monotonic())
        return [sent, times]

    def run(self, prompt, answer, marks):
        while not self.stop.is_set():
            marks.append(self.request(prompt, answer))


def main():
    peer = Peer(sys.argv[1], int(sys.argv[2]))
    peer.request(64, 8)  # warm-up
    print("ready", flush=True)
    for line in sys.stdin:
        prompt, answer = map(int, line.split())
        marks = []
        peer.stop.clear()
        worker = threading.Thread(target=peer.run, args=(prompt, answer, marks))
        worker.start()
        sys.stdin.readline()
        peer.stop.set()
        worker.join()
        print(json.dumps(marks), flush=True)


if __name__ == "__main__":
    main()
