#!/usr/bin/env python3
"""Writes the tiny hybrid in the form that vLLM loads, from the committed GGUF file:  make_hf.py OUT_FOLDER

The inverse of what converters to GGUF do for this family: norms without their added one, A as a logarithm, value heads
grouped by key head again. Weights are those of the 8-bit file, as bfloat16. Needs numpy (vLLM's own environment has it).
"""
import json
import pathlib
import struct
import sys

import numpy as np

TINY = pathlib.Path(__file__).resolve().parents[1] / "models" / "tiny-hybrid-q8_0.gguf"
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5  # kinds of tokens
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")


class Gguf:
    """A file of ours, read without suspicion."""

    def __init__(self, path):
        self.data = path.read_bytes()
        self.at = 8
        count, keys = self.scalar("Q"), self.scalar("Q")
        self.values = {}
        for _ in range(keys):
            key = self.text()
            self.values[key] = self.value(self.scalar("I"))
        infos = []
        for _ in range(count):
            name = self.text()
            shape = [self.scalar("Q") for _ in range(self.scalar("I"))]
            infos.append((name, shape, self.scalar("I"), self.scalar("Q")))
        align = self.values.get("general.alignment", 32)
        start = (self.at + align - 1) // align * align
        self.tensors = {name: self.tensor(shape, kind, start + offset) for name, shape, kind, offset in infos}

    def scalar(self, kind):
        value = struct.unpack_from("<" + kind, self.data, self.at)[0]
        self.at += struct.calcsize(kind)
        return value

    def text(self):
        size = self.scalar("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode("utf-8")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            item = self.scalar("I")
            return [self.value(item) for _ in range(self.scalar("Q"))]
        return self.scalar(SCALARS[kind])

    def tensor(self, shape, kind, offset):
        count = int(np.prod(shape))
        if kind == 0:
            flat = np.frombuffer(self.data, "<f4", count, offset)
        elif kind == 8:  # blocks of 32: a half-precision scale, 32 bytes
            blocks = np.frombuffer(self.data, np.dtype([("d", "<f2"), ("q", "i1", 32)]), count // 32, offset)
            flat = (blocks["q"].astype(np.float32) * blocks["d"].astype(np.float32)[:, None]).ravel()
        else:
            raise ValueError(f"a tensor of type {kind}")
        return flat.reshape(shape[::-1])


def grouped(array, key_heads, value_heads, axis=0):
    """Value heads from tiled order (one of each key head, then the next) to grouped (all of a key head)."""
    rows = np.moveaxis(array, axis, 0)
    each = rows.shape[0] // value_heads
    rows = rows.reshape(value_heads // key_heads, key_heads, each, *rows.shape[1:]).swapaxes(0, 1)
    return np.moveaxis(rows.reshape(value_heads * each, *rows.shape[3:]), 0, axis)


def layer(tensors, source, target, key_heads, value_heads, key_width):
    get = lambda name: tensors[f"{source}.{name}.weight"]  # noqa: E731
    out = {"input_layernorm": get("attn_norm") - 1, "post_attention_layernorm": get("post_attention_norm") - 1,
           "mlp.gate_proj": get("ffn_gate"), "mlp.up_proj": get("ffn_up"), "mlp.down_proj": get("ffn_down")}
    raw = {}
    if f"{source}.attn_q.weight" in tensors:
        out |= {f"self_attn.{kind}_proj": get(f"attn_{kind}") for kind in "qkv"}
        out |= {"self_attn.o_proj": get("attn_output"), "self_attn.q_norm": get("attn_q_norm") - 1,
                "self_attn.k_norm": get("attn_k_norm") - 1}
    else:
        heads = (key_heads, value_heads)
        split = lambda a: np.concatenate([a[:2 * key_width], grouped(a[2 * key_width:], *heads)])  # noqa: E731
        out |= {"linear_attn.in_proj_qkv": split(get("attn_qkv")), "linear_attn.in_proj_z": grouped(get("attn_gate"), *heads),
                "linear_attn.in_proj_a": grouped(get("ssm_alpha"), *heads), "linear_attn.in_proj_b": grouped(get("ssm_beta"), *heads),
                "linear_attn.conv1d": split(get("ssm_conv1d"))[:, None, :], "linear_attn.norm": get("ssm_norm"),
                "linear_attn.out_proj": grouped(get("ssm_out"), *heads, axis=1)}
        raw = {"linear_attn.A_log": grouped(np.log(-tensors[f"{source}.ssm_a"]), *heads),
               "linear_attn.dt_bias": grouped(tensors[f"{source}.ssm_dt.bias"], *heads)}
    return {f"{target}.{name}.weight": value for name, value in out.items()} | {f"{target}.{name}": v for name, v in raw.items()}


def weights(gguf):
    values, tensors = gguf.values, gguf.tensors
    key_heads, value_heads = values["qwen35.ssm.group_count"], values["qwen35.ssm.time_step_rank"]
    key_width = key_heads * values["qwen35.ssm.state_size"]
    draft = values["qwen35.block_count"] - 1
    out = {"model.embed_tokens.weight": tensors["token_embd.weight"], "lm_head.weight": tensors["output.weight"],
           "model.norm.weight": tensors["output_norm.weight"] - 1}
    for number in range(draft):
        out |= layer(tensors, f"blk.{number}", f"model.layers.{number}", key_heads, value_heads, key_width)
    out |= layer(tensors, f"blk.{draft}", "mtp.layers.0", key_heads, value_heads, key_width)
    for name, source in (("fc", "eh_proj"), ("pre_fc_norm_embedding", "enorm"), ("pre_fc_norm_hidden", "hnorm"),
                         ("norm", "shared_head_norm")):
        out[f"mtp.{name}.weight"] = tensors[f"blk.{draft}.nextn.{source}.weight"] - (0 if name == "fc" else 1)
    return out


def write_safetensors(path, arrays):
    header, blobs, at = {}, [], 0
    for name in sorted(arrays):
        bits = np.ascontiguousarray(arrays[name], dtype=np.float32).view(np.uint32)
        # Round to nearest, ties to even.
        blob = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(arrays[name].shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def config(values):
    get = lambda name: values[f"qwen35.{name}"]  # noqa: E731
    layers = get("block_count") - get("nextn_predict_layers")
    every = get("full_attention_interval")
    return {
        "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "dtype": "bfloat16", "hidden_act": "silu",
        "vocab_size": get("vocab_size"), "hidden_size": get("embedding_length"), "intermediate_size": get("feed_forward_length"),
        "num_hidden_layers": layers, "num_attention_heads": get("attention.head_count"), "attention_bias": False,
        "num_key_value_heads": get("attention.head_count_kv"), "head_dim": get("attention.key_length"), "attention_dropout": 0.0,
        "max_position_embeddings": get("context_length"), "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "use_cache": True,
        "eos_token_id": values["tokenizer.ggml.eos_token_id"], "mtp_num_hidden_layers": 1, "full_attention_interval": every,
        "partial_rotary_factor": get("rope.dimension_count") / get("attention.key_length"),
        "rope_parameters": {"rope_type": "default", "rope_theta": get("rope.freq_base"), "mrope_interleaved": True,
                            "mrope_section": get("rope.dimension_sections")[:3],
                            "partial_rotary_factor": get("rope.dimension_count") / get("attention.key_length")},
        "linear_conv_kernel_dim": get("ssm.conv_kernel"), "linear_key_head_dim": get("ssm.state_size"),
        "linear_value_head_dim": get("ssm.inner_size") // get("ssm.time_step_rank"), "linear_num_key_heads": get("ssm.group_count"),
        "linear_num_value_heads": get("ssm.time_step_rank"),
        "layer_types": ["full_attention" if number % every == every - 1 else "linear_attention" for number in range(layers)]}


def tokenizer(values):
    tokens, kinds = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    added = [{"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for number, (token, kind) in enumerate(zip(tokens, kinds)) if kind in (CONTROL, USER_DEFINED)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False}, level]},
            "post_processor": None, "decoder": {**level, "add_prefix_space": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {token: number for number, (token, kind) in enumerate(zip(tokens, kinds)) if kind != UNUSED},
                      "merges": [merge.split(" ") for merge in values["tokenizer.ggml.merges"]]}}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    gguf = Gguf(TINY)
    values = gguf.values
    eos, pad = (values[f"tokenizer.ggml.{kind}_token_id"] for kind in ("eos", "padding"))
    tokens = values["tokenizer.ggml.tokens"]
    texts = {"config.json": config(values), "generation_config.json": {"eos_token_id": [eos], "pad_token_id": pad},
             "tokenizer.json": tokenizer(values),
             "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": tokens[eos], "pad_token": tokens[pad],
                                       "model_max_length": values["qwen35.context_length"],
                                       "chat_template": values["tokenizer.chat_template"]}}
    for name, content in texts.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), "utf-8")
    write_safetensors(folder / "model.safetensors", weights(gguf))
    print(folder)


if __name__ == "__main__":
    main()
