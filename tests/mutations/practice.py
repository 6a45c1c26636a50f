"""Probes that see nothing, budgets that forget a term, bytes and pages miscounted: each killed by its number."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

BUDGET = "attnbook/costs/budget.py"
KV = "attnbook/costs/kv.py"
SHAPE = "attnbook/costs/shape.py"
DTYPES = "attnbook/costs/dtypes.py"
CALLING = "attnbook/probes/calling.py"
BATCH = "attnbook/probes/batch_dependence.py"
LEAK = "attnbook/probes/causal_leak.py"
OVERFLOW = "attnbook/probes/overflow.py"
PAGES = "attnbook/reference/kv_cache/pages.py"
FAULTS = "attnbook/experiments/_faults.py"
MEMORY = "attnbook/experiments/practice_memory.py"
KERNELS = "attnbook/experiments/practice_kernels.py"
COMMAND = "attnbook/cli/probe.py"
CACHE = "practice.kv_cache"

BUDGETS = (
    Mutation("weights are not subtracted", BUDGET, "return self.weights + self.cache", "return self.cache",
             "practice.kv_now_requests"),
    Mutation("requests are not multiplied", BUDGET, "tokens=self.context, requests=self.requests,",
             "tokens=self.context, requests=1,", CACHE),
    Mutation("one GPU for all", BUDGET, "else self.gpus * (self.memory - self.reserve)",
             "else self.memory - self.reserve", "practice.kv_room"),
    Mutation("one request more than fit", BUDGET, "        return low\n", "        return low + 1\n",
             "practice.kv_shorter_requests"),
    Mutation("GPUs rounded down", BUDGET, "-(-over.needed // each)", "over.needed // each", "practice.kv_gpus_needed"),
    Mutation("float8 in 16 bits", DTYPES, "return _BITS_OF[name]", 'return 16 if name == "float8" else _BITS_OF[name]',
             "practice.kv_float8_cache"),
    Mutation("a smaller type for the weights alone", BUDGET,
             "weights_dtype=weights_dtype, kv_dtype=kv_dtype)\n\n\nMANY",
             "weights_dtype=weights_dtype)\n\n\nMANY", "practice.kv_float8_cache"),
    Mutation("smaller weights weigh the same", BUDGET, "if weights_dtype != self.weights_dtype:", "if False:",
             "practice.kv_small_weights_requests"),
    Mutation("layers with a window keep all tokens", KV, "length if window is None else min(length, window)", "length",
             "practice.cache_gemma3_27b_128"),
    Mutation("GB for GiB", "attnbook/costs/sizes.py", '"GB": 10**9', '"GB": 1 << 30', "practice.gigabytes"),
)  # fmt: skip

PAGING = (
    Mutation("a page more than needed", PAGES, "return -(-length // page_size)", "return length // page_size + 1",
             "practice.paging_all_long"),
    Mutation("every page is taken twice", PAGES, "return -(-length // page_size)", "return -(-length // page_size) * 2",
             "practice.paging_waste_16"),
)  # fmt: skip

PROBES = (
    Mutation("the probe of the batch sees no difference", BATCH, "if moved > quiet:", "if moved > 1e9 * quiet:",
             "practice.batch_found"),
    Mutation("rounding is a finding", CALLING, "eps ** 0.5 * out", "eps * 1e-9 * out", "practice.batch_false_alarms"),
    Mutation("the probe of the leak looks at the future", LEAK, "moved[:j] >", "moved[j:] >",
             "practice.good_honest_found"),
    Mutation("the probe of the leak looks nowhere", LEAK, "moved[:j] >", "moved[:0] >", "practice.good_ahead_found"),
    Mutation("the leak is told one place too near", LEAK, "output=i, input=j, amount", "output=i, input=i, amount",
             "practice.good_sees_ahead"),
    Mutation("overflow does not look", OVERFLOW, "if bad := _bad(x):\n            self.first",
             "if bad := 0:\n            self.first", "practice.nan_named"),
    Mutation("weights are not looked at first", OVERFLOW, "if isinstance(module, nn.Module):\n        for name, x",
             "if False:\n        for name, x", "practice.nan_late_not_run"),
    Mutation("the command ends with 0 whatever it found", COMMAND,
             "return FINE if all(report.ok for report in reports) else FOUND", "return FINE",
             "practice.command_status_found"),
)  # fmt: skip

CASES = (
    Mutation("the maximum is not subtracted", "attnbook/reference/softmax.py", "e = xp.exp(z - finite_max(z, axis))",
             "e = xp.exp(z)", "practice.nan_healthy_broken"),
    Mutation("ε outside the root in both", "attnbook/experiments/practice_gradient.py",
             "if self.inside else", "if False else", "practice.gradient_inside_nans"),
    Mutation("the convolution of the honest model sees ahead", FAULTS, "sides = (1, 1) if self.ahead else (2, 0)",
             "sides = (1, 1)", "practice.good_honest"),
    Mutation("the filling is never hidden", FAULTS, "if self.hidden else None", "if False else None",
             "practice.batch_hidden_moved"),
    Mutation("room is shared in all", FAULTS, "capacity_factor=self.capacity_factor", "capacity_factor=1.0",
             "practice.batch_false_alarms"),
    Mutation("memory that is shared counts each time", MEMORY, "seen[x.untyped_storage().data_ptr()]",
             "seen[len(seen)]", "practice.memory_formula_bytes"),
    Mutation("alone is compared with another sequence", KERNELS, "(alone[0] - together[i])",
             "(alone[0] - together[i - 1])", "practice.kernel_ours_equal"),
    Mutation("a batch has other splits", "attnbook/tiled/decode.py", "self.keys = min(max(numbers //",
             "self.keys = min(max(numbers // 8 // sizes.b //", "practice.kernel_ours_equal"),
)  # fmt: skip

PRACTICE = (*BUDGETS, *PAGING, *PROBES, *CASES)
