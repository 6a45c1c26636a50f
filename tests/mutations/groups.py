"""The KV cache counted, filled and shared wrongly, and a model's table with a wrong number: chapter 9b notices."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

KV = "attnbook/costs/kv.py"
SHAPE = "attnbook/costs/shape.py"
DTYPES = "attnbook/costs/dtypes.py"
TABLE = "attnbook/costs/models.csv"
FLOPS = "attnbook/costs/flops.py"
CACHE = "attnbook/reference/kv_cache/contiguous.py"
LAYER = "attnbook/reference/heads.py"
ATTENTION = "attnbook/reference/attention.py"
INTENSITY = "attnbook/experiments/groups_intensity.py"
MERGED = "attnbook/experiments/groups_merged.py"

TWO = "return 2 * self.n_kv_heads * self.head_dim"
WRITTEN = "memory[:, :, self._length : new] = x.detach()"

GROUPED = (
    Mutation("KV bytes without the 2", SHAPE, TWO, TWO.replace("2 * ", ""), "groups.llama3_70_token"),
    Mutation(
        "KV bytes without the 2, seen by real caches", SHAPE, TWO, TWO.replace("2 * ", ""), "groups.real_off"
    ),
    Mutation("bytes of every query head", SHAPE, TWO, TWO.replace("n_kv_heads", "n_heads"), "groups.llama3_8_context"),
    Mutation(
        "MLA without the part that RoPE turns",
        SHAPE,
        "return self.latent.kv_lora_rank + self.latent.qk_rope_head_dim",
        "return self.latent.kv_lora_rank",
        "groups.deepseek_token",
    ),
    Mutation(
        "windows keep everything",
        KV,
        "length if window is None else min(length, window)",
        "length",
        "groups.gemma_27_context",
    ),
    Mutation("requests are not counted", KV, "(int(tokens), int(requests))", "(int(tokens), 1)", "groups.all_requests"),
    Mutation("bytes of 4 bits", DTYPES, "dtype_bits(dtype) // 8)", "dtype_bits(dtype) // 4)", "groups.smollm2_off"),
    Mutation("bfloat16 takes 4 bytes", DTYPES, "return _BITS_OF[name]", "return max(_BITS_OF[name], 32)",
             "groups.large_in_float32"),
    Mutation(
        "a wrong number of key heads in the table",
        TABLE,
        "Llama-3.1-70B,80,8192,64,8,128",
        "Llama-3.1-70B,80,8192,64,16,128",
        "groups.llama3_70_context",
    ),
    Mutation(
        "a wrong number of layers in the table",
        TABLE,
        "Qwen2.5-7B,28,3584,28,4",
        "Qwen2.5-7B,32,3584,28,4",
        "groups.qwen_7_layers",
    ),
    Mutation(
        "the cache is off by one",
        CACHE,
        WRITTEN,
        WRITTEN.replace("self._length : new", "max(self._length - 1, 0) : new - min(self._length, 1)"),
        "groups.cached_error",
    ),
    Mutation(
        "cached tokens stand one place further",
        LAYER,
        "return lengths[:, None] + following if",
        "return lengths[:, None] + 1 + following if",
        "groups.cached_error",
    ),
    Mutation(
        "positions begin again behind a cache",
        LAYER,
        "return lengths[:, None] + following if",
        "return 0 * lengths[:, None] + following if",
        "groups.cached_error",
    ),
    Mutation(
        "groups take turns",
        ATTENTION,
        "return head // (n_heads // n_kv_heads)",
        "return head % n_kv_heads",
        "groups.map_error",
    ),
    Mutation(
        "heads repeated as a whole", MERGED, "w.repeat_interleave(size, 0)", "w.repeat(size, 1, 1)",
        "groups.as_many_heads",
    ),
    Mutation("heads are added, not averaged", MERGED, "heads.mean(0, keepdim=True)", "heads.sum(0, keepdim=True)",
             "groups.merged_mean"),
    Mutation(
        "grouped scores are not counted", FLOPS, "scores=2 * pairs", "scores=pairs", "groups.flops_as_counted"
    ),
    Mutation(
        "the products of values are not counted", FLOPS, "values=2 * pairs", "values=pairs", "groups.latent_intensity"
    ),
    Mutation(
        "a peak that only sparse matrices reach", INTENSITY, "PEAK_SPARSE / 2 / BANDWIDTH", "PEAK_SPARSE / BANDWIDTH",
        "groups.ridge",
    ),
    Mutation(
        "the latent's values count as long as its keys",
        INTENSITY,
        "head_dim=kept, d_v=latent.kv_lora_rank)",
        "head_dim=kept, d_v=kept)",
        "groups.latent_intensity",
    ),
)  # fmt: skip
