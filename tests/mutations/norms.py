"""Norms and residuals broken, each by the claim of chapter 8 that must notice."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

FORMULAS = "attnbook/reference/norms.py"
BLOCK = "attnbook/reference/block.py"
STACKED = "attnbook/experiments/_stacked.py"
NUMERICS = "attnbook/experiments/norms_numerics.py"
STREAM = "attnbook/experiments/norms_stream.py"

NORMS = (
    Mutation(
        "LayerNorm over the tokens",
        FORMULAS,
        "    centred, _ = _centred(z, -1)\n    variance = xp.mean(centred * centred, axis=-1, keepdims=True)",
        "    axis = -1 if len(z.shape) < 2 else -2\n    centred, _ = _centred(z, axis)\n"
        "    variance = xp.mean(centred * centred, axis=axis, keepdims=True)",
        "norm.layer_short_error",
    ),
    Mutation(
        "ε outside the root",
        FORMULAS,
        "return _finish(centred / xp.sqrt(variance + eps), x, weight, bias)",
        "return _finish(centred / (xp.sqrt(variance) + eps), x, weight, bias)",
        "norm.eps_inside_small",
    ),
    Mutation(
        "unbiased variance",
        FORMULAS,
        "variance = xp.mean(centred * centred, axis=-1, keepdims=True)",
        "variance = xp.sum(centred * centred, axis=-1, keepdims=True) / (x.shape[-1] - 1)",
        "norm.layer_variance_error",
    ),
    Mutation(
        "LayerNorm keeps the mean",
        FORMULAS,
        "return _finish(centred / xp.sqrt(variance + eps)",
        "return _finish(z / xp.sqrt(variance + eps)",
        "norm.layer_mean",
    ),
    Mutation(
        "the mean of large numbers is taken once",
        FORMULAS,
        "return z - about - rest, about + rest",
        "return z - about, about",
        "norm.far_two_pass_error",
    ),
    Mutation(
        "RMSNorm subtracts the mean",
        FORMULAS,
        "z = z / xp.sqrt(xp.mean(z * z, axis=-1, keepdims=True) + eps)",
        "z = z - xp.mean(z, axis=-1, keepdims=True)\n    z = z / xp.sqrt(xp.mean(z * z, axis=-1, keepdims=True) + eps)",
        "norm.shift_rms_moves",
    ),
    Mutation(
        "RMSNorm without the root",
        FORMULAS,
        "z = z / xp.sqrt(xp.mean(z * z, axis=-1, keepdims=True) + eps)",
        "z = z / (xp.mean(z * z, axis=-1, keepdims=True) + eps)",
        "norm.rms_mean_square_error",
    ),
    Mutation(
        "RMSNorm in the dtype of its input",
        FORMULAS,
        "    z = _begin(x, eps, weight=weight)\n",
        "    z = x\n",
        "norm.half_error",
    ),
    Mutation(
        "BatchNorm's running statistics are unused in evaluation",
        FORMULAS,
        "if not self.training:\n            mean, variance = self.running_mean, self.running_var",
        "if False:\n            mean, variance = self.running_mean, self.running_var",
        "norm.batch_eval_alone_error",
    ),
    Mutation(
        "BatchNorm's running statistics take no step",
        FORMULAS,
        "running.lerp_(batch.to(running.dtype), share)",
        "running.lerp_(batch.to(running.dtype), 0.0)",
        "norm.batch_train_changes_state",
    ),
    Mutation(
        "pre and post swapped",
        BLOCK,
        'if self.norm == "pre":',
        'if self.norm == "post":',
        "norm.bottom_over_top_pre",
    ),
    Mutation(
        "the residual is dropped",
        BLOCK,
        "return x + change if self.residual else change",
        "return change",
        "norm.alike_deep_both",
    ),
    Mutation(
        "the residual is always there",
        BLOCK,
        "return x + change if self.residual else change",
        "return x + change",
        "norm.alike_deep_no_residual",
    ),
    Mutation(
        "a warm-up that never ends",
        STACKED,
        "((step + 1) / (warmups + 1)).clamp(max=1)",
        "((step + 1) / (warmups + 1) / 50).clamp(max=1)",
        "norm.loss_pre_low_warm",
    ),
    Mutation(
        "one rate for all models",
        STACKED,
        "stride = (now /",
        "stride = (now.max().expand_as(now) /",
        "norm.loss_post_low",
    ),
    Mutation(
        "the one-pass variance, right after all",
        NUMERICS,
        "variance = moved.square().mean(-1, keepdim=True) - moved.mean(-1, keepdim=True).square()",
        "variance = moved.var(-1, correction=0, keepdim=True)",
        "norm.far_one_pass_right",
    ),
    Mutation(
        "the stream of the second token",
        STREAM,
        "first, rest = size[:, 0],",
        "first, rest = size[:, 1],",
        "norm.stream_first_over_rest",
    ),
)
