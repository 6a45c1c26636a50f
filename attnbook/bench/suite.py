"""All cases, with what is asked of each: the project's own targets, a little below what a prototype reached."""

from __future__ import annotations

from attnbook.bench import attention_cases as dense
from attnbook.bench import memory_cases as memory
from attnbook.bench import model_cases as model
from attnbook.bench import packed_cases as packed
from attnbook.bench.case import Case, Target

SUITE = (
    *(
        Case(f"auto-{t}", f"the door over SDPA, {t} tokens", Target(3.0, at_least=False, unit="%"), dense.overhead(t))
        for t in (512, 1024, 2048)
    ),
    *(
        Case(f"auto-{kind}", f"the door over SDPA, 512 tokens, {words}", Target(3.0, at_least=False, unit="%"), run)
        for kind, words in (("mask", "a mask"), ("groups", "8 heads over 2"), ("training", "with backward"))
        for run in (dense.overhead_more(kind),)
    ),
    Case("window-forward", "window 512 of 16384, over SDPA with a mask", Target(14.0), dense.window_forward),
    Case("window-training", "window 512 of 8192 with backward, over SDPA", Target(6.0), dense.window_training),
    Case("window-memory", "window 512 of 16384, less memory than SDPA", Target(16.0), memory.window_memory),
    Case("window-flex", "window 512 of 16384, over FlexAttention", Target(1.0), dense.window_flex),
    Case("varlen-equal", "16 documents of 1024, over SDPA with a mask", Target(10.0), packed.packed(packed.EQUAL)),
    Case("varlen-skewed", "16 documents of 32 to 5120, over SDPA", Target(7.0), packed.packed(packed.SKEWED)),
    *(
        Case(f"decode-{short}-{b}", f"1 token after 8192, {dtype}, batch {b}", Target(asked), dense.decoding(dtype, b))
        for short, dtype, asked in (("f32", "float32", 2.0), ("bf16", "bfloat16", 6.0))
        for b in (1, 8)
    ),
    Case("causal-forward", "tiles at 8192, over SDPA's flash", Target(0.6), dense.causal_forward),
    Case("memory-flat", "tiles at 2048 to 8192: most over least", Target(1.5, at_least=False), memory.memory_flat),
    Case("smollm2-generation", "64 greedy tokens, over transformers", Target(1.4), model.generation),
    Case("smollm2-loading", "reading the file, over transformers", Target(2.5), model.loading, planned=90.0),
    Case("moe", "2 of 16 experts, over all experts", Target(2.0), packed.experts),
)
