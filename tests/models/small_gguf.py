"""A tiny model of Llama's kind in a GGUF file, and the real one, each loaded once a process."""

import functools

import gguf
import numpy as np

from attnbook.models.gguf_file import find_model
from attnbook.models.smollm2 import SmolLM2
from attnbook.models.tokenizer import byte_letters

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD_DIM, D_FF = 3, 32, 4, 2, 8, 64
END = 256
TOKENS = [*byte_letters().values(), "<|end|>", "<|e", "Ġt", "Ġth"]
MERGES = ["Ġ t", "Ġt h"]
TYPES = [1] * 256 + [3, 4, 1, 1]


def write(path, *, tied=True, kind=None, more=(), **metadata):
    """Write the file; `kind` is that of the matrices, `more` are tensors, `metadata` replaces keys ("__" for ".")."""
    random = np.random.default_rng(11)
    kind = gguf.GGMLQuantizationType.F32 if kind is None else kind
    writer = gguf.GGUFWriter(path, metadata.pop("general__architecture", "llama"))
    keys = {
        "llama.block_count": LAYERS, "llama.context_length": 128, "llama.embedding_length": WIDTH,
        "llama.feed_forward_length": D_FF, "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS, "llama.rope.freq_base": 1000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.eos_token_id": END,
    } | {key.replace("__", "."): value for key, value in metadata.items()}  # fmt: skip
    for key, value in keys.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)
    writer.add_token_list(TOKENS)
    writer.add_token_types(TYPES)
    writer.add_token_merges(MERGES)

    def matrix(name, *shape):
        x = random.standard_normal(shape).astype(np.float32) * (0.5 if name == "token_embd" else 2 * shape[-1] ** -0.5)
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(x, kind), raw_dtype=kind)

    def vector(name, size):
        writer.add_tensor(f"{name}.weight", (1 + random.standard_normal(size) / 4).astype(np.float32))

    matrix("token_embd", len(TOKENS), WIDTH)
    for i in range(LAYERS):
        vector(f"blk.{i}.attn_norm", WIDTH)
        matrix(f"blk.{i}.attn_q", HEADS * HEAD_DIM, WIDTH)
        matrix(f"blk.{i}.attn_k", KV_HEADS * HEAD_DIM, WIDTH)
        matrix(f"blk.{i}.attn_v", KV_HEADS * HEAD_DIM, WIDTH)
        matrix(f"blk.{i}.attn_output", WIDTH, HEADS * HEAD_DIM)
        vector(f"blk.{i}.ffn_norm", WIDTH)
        matrix(f"blk.{i}.ffn_gate", D_FF, WIDTH)
        matrix(f"blk.{i}.ffn_up", D_FF, WIDTH)
        matrix(f"blk.{i}.ffn_down", WIDTH, D_FF)
    vector("output_norm", WIDTH)
    if not tied:
        matrix("output", len(TOKENS), WIDTH)
    for name in more:
        writer.add_tensor(name, np.ones(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@functools.cache
def real():
    """SmolLM2, which the tests' session installs; where it is not, the error says how."""
    return SmolLM2.load()


def real_path():
    """Its file."""
    return find_model()
