"""The cases of a GPU in the order in which they run: what is right, what the card can do, how fast the kernels are.

What is asked comes first, so that a run which ends early has it. The seconds planned for each hold what it has to
compile; they add up to less than the 8 minutes that the command may take. Of the package only `kernels` and `costs` are
used, and of others torch and triton: a machine that is lent for a quarter of an hour need have nothing else.
"""

from __future__ import annotations

from attnbook.bench import ceilings, expert_checks, gpu_decode, kernel_checks
from attnbook.bench import gpu_attention as attention
from attnbook.bench import gpu_moe as moe
from attnbook.bench.case import Case, Target
from attnbook.bench.gpu_attention import Problem
from attnbook.bench.gpu_moe import Layer

ALLOWED = Target(1.0, at_least=False)
"""Of an error: as a multiple of what rounding explains."""
CARD = "H200"
"""The card that targets are for."""
TFLOPS, GBS = Target(None, unit="TFLOP/s"), Target(None, unit="GB/s")

CHECKS = (
    Case("check-forward", "attention's out and lse against float64", ALLOWED, kernel_checks.forward, 15),
    Case("check-decode", "decoding from a contiguous cache", ALLOWED, kernel_checks.decode, 15),
    Case("check-paged", "decoding from pages", ALLOWED, kernel_checks.paged, 10),
    Case("check-backward", "attention's gradients", ALLOWED, kernel_checks.backward, 40, ("check-forward",)),
    Case("check-varlen", "packed sequences and their gradients", ALLOWED, kernel_checks.varlen, 25),
    Case("check-route", "the router's choice and weights", ALLOWED, expert_checks.route, 3),
    Case("check-experts", "what the experts do", ALLOWED, expert_checks.forward, 20),
    Case("check-experts-backward", "gradients of the experts", ALLOWED, expert_checks.backward, 30),
)

CEILINGS = (
    Case("copy", "copying 1 GiB: bytes read and written", GBS, ceilings.copy, 3),
    Case("matmul-bf16", "a product of 8192 x 8192 matrices", TFLOPS, ceilings.matmul("bfloat16"), 3),
    Case("matmul-fp16", "the same in float16", TFLOPS, ceilings.matmul("float16"), 3),
)


def _forward(name: str, what: str, problem: Problem, planned: float, target: Target = TFLOPS) -> Case:
    return Case(f"forward-{name}", what, target, attention.forward(problem), planned, ("check-forward",))


def _backward(name: str, what: str, problem: Problem, planned: float, target: Target = TFLOPS) -> Case:
    needs = ("check-forward", "check-backward")
    return Case(f"backward-{name}", what, target, attention.backward(problem), planned, needs)


# What the FlashAttention-3 paper measures: 16 384 tokens in all, heads that are together 2 048 wide.
SPEED = (
    _forward("causal-4k", "causal, b 4, 16 heads, d 128, bfloat16", Problem(4, 16, 4_096, flex=True), 25,
             Target(353.0, unit="TFLOP/s", card=CARD)),
    _backward("causal-4k", "the same, gradients", Problem(4, 16, 4_096, flex=True), 35,
              Target(300.0, unit="TFLOP/s", card=CARD)),
    Case("decode-32x8k", "1 token after 8192, 32 sequences, 32 heads over 8, d 128",
         Target(80.0, unit="% of copy", card=CARD), gpu_decode.contiguous(32, 8_192, flex=True), 25, ("check-decode",)),
    Case("moe-64e", "8 of 64 experts, 8192 tokens, d 2048, f 1024", Target(80.0, unit="% of mm", card=CARD),
         moe.forward(Layer(8_192, 2_048, 64, 8, 1_024)), 12, ("check-experts",)),
    Case("moe-8e", "2 of 8 experts, 4096 tokens, d 4096, f 14336", Target(80.0, unit="% of mm", card=CARD),
         moe.forward(Layer(4_096, 4_096, 8, 2, 14_336)), 15, ("check-experts",)),
    Case("decode-1x128k", "1 token after 131072, 1 sequence", Target(80.0, unit="% of copy", card=CARD),
         gpu_decode.contiguous(1, 131_072), 10, ("check-decode",)),
    Case("decode-paged", "1 token after 8192 in pages of 16, 32 sequences", Target(80.0, unit="% of copy", card=CARD),
         gpu_decode.paged(32, 8_192), 10, ("check-paged",)),
    _forward("causal-16k", "causal, b 1, 16 heads, d 128", Problem(1, 16, 16_384), 10),
    _forward("full-4k", "not causal, b 4, 16 heads, d 128", Problem(4, 16, 4_096, is_causal=False), 8),
    _forward("d64", "causal, b 4, 32 heads, d 64", Problem(4, 32, 4_096, 64), 8),
    _forward("d256", "causal, b 4, 8 heads, d 256", Problem(4, 8, 4_096, 256), 8),
    _forward("gqa", "causal, b 4, 32 heads over 8, d 128", Problem(4, 32, 4_096, n_kv_heads=8), 8),
    _forward("fp16", "causal, b 4, 16 heads, d 128, float16", Problem(4, 16, 4_096, dtype="float16"), 8),
    _forward("window", "window 1024 of 16384, b 1, 16 heads", Problem(1, 16, 16_384, window=1_024, flex=True), 25),
    _backward("full-4k", "not causal, gradients", Problem(4, 16, 4_096, is_causal=False), 10),
    _backward("gqa", "32 heads over 8, gradients", Problem(4, 32, 4_096, n_kv_heads=8), 10),
    _backward("d64", "32 heads, d 64, gradients", Problem(4, 32, 4_096, 64), 10),
    Case("moe-backward", "8 of 64 experts, gradients", TFLOPS, moe.backward(Layer(8_192, 2_048, 64, 8, 1_024)), 20,
         ("check-experts", "check-experts-backward")),
    Case("varlen-skewed", "16 documents of 32 to 5120, 16 heads, d 128", TFLOPS, attention.packed, 30,
         ("check-varlen",)),
)  # fmt: skip

GPU_SUITE = (*CHECKS, *CEILINGS, *SPEED)
