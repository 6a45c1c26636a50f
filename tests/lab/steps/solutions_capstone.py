"""Causal attention of grouped heads as readers write it: right in many styles, and wrong in two ways a mistake."""

NUMPY = """\
import numpy as np

def soft(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)

def keep(n, m):
    return np.tri(n, m, m - n, dtype=bool)

def one(q, k, v):
    s = q @ k.T / np.sqrt(q.shape[1])
    return soft(np.where(keep(*s.shape), s, -np.inf)) @ v

def attention(q, k, v):
    h, n, d = q.shape
    g, m, _ = k.shape
    """
TORCH = """\
import math
import torch
import torch.nn.functional as F

def attention(q, k, v):
    h, n, d = q.shape
    g, m = k.shape[:2]
    keep = torch.ones(n, m, dtype=torch.bool).tril(m - n)
    """
BARE = "import math\nimport numpy as np\n\ndef attention(queries, keys, values):\n    "
STEP4 = "from step4_causal_mask import causal_attention\n"


def in_numpy(*lines: str) -> str:
    return NUMPY + "\n    ".join(lines)


def in_torch(*lines: str) -> str:
    return TORCH + "\n    ".join(lines)


def bare(*lines: str) -> str:
    return BARE + "\n    ".join(lines)


REPEAT = "k, v = np.repeat(k, h // g, 0), np.repeat(v, h // g, 0)"
REPEAT_T = "k, v = (x.repeat_interleave(h // g, 0) for x in (k, v))"
SCORES = "s = q @ k.transpose(0, 2, 1) / np.sqrt(d)"
SCORES_T = "s = q @ k.mT / math.sqrt(d)"

RIGHT = {
    "a loop over heads": in_numpy("return np.stack([one(q[i], k[i * g // h], v[i * g // h]) for i in range(h)])"),
    "step 4's function": STEP4 + "import numpy as np\nattention = lambda q, k, v: np.array([causal_attention(x, "
    "k[i // (len(q) // len(k))], v[i // (len(q) // len(k))]) for i, x in enumerate(q)])",
    "groups, then their heads": bare(
        STEP4.strip(),
        "queries = queries.reshape(len(keys), -1, *queries.shape[1:])",
        "out = [causal_attention(q, k, v) for group, k, v in zip(queries, keys, values) for q in group]",
        "return out",
    ),
    "repeated": in_numpy(REPEAT, SCORES, "return soft(np.where(keep(n, m), s, -np.inf)) @ v"),
    "the smallest number added": in_numpy(REPEAT, SCORES, "return soft(s + ~keep(n, m) * np.float32(-3e38)) @ v"),
    "a group's queries as one table": in_numpy(
        "s = np.einsum('gald,gmd->galm', q.reshape(g, h // g, n, d), k) / d ** 0.5",
        "s[..., ~keep(n, m)] = -1e9",
        "return np.einsum('galm,gmd->gald', soft(s), v).reshape(h, n, d)",
    ),
    "float64": in_numpy(
        "q, k, v = (x.astype(np.float64) for x in (q, k, v))", REPEAT, SCORES,
        "w = np.exp(s) * keep(n, m)", "return w @ v / w.sum(-1, keepdims=True)",
    ),
    "a query at a time, in lists": bare(
        "shared, out = len(queries) // len(keys), []",
        "for h, head in enumerate(queries):",
        "    k, v, rows = keys[h // shared], values[h // shared], []",
        "    for i, q in enumerate(head):",
        "        seen = i + len(k) - len(head) + 1",
        "        s = [sum(float(a) * float(b) for a, b in zip(q, key)) / math.sqrt(len(q)) for key in k[:seen]]",
        "        e = [math.exp(x - max(s)) for x in s]",
        "        rows.append([sum(w * float(x) for w, x in zip(e, v[:seen, c])) / sum(e) for c in range(v.shape[1])])",
        "    out.append(rows)",
        "return out",
    ),
    "online": bare(
        "shared, out = len(queries) // len(keys), np.zeros_like(queries)",
        "past = keys.shape[1] - queries.shape[1]",
        "for h, i in np.ndindex(*queries.shape[:2]):",
        "    top, total, row = -np.inf, 0.0, 0.0",
        "    for k, v in zip(keys[h // shared, :past + i + 1], values[h // shared]):",
        "        s = queries[h, i] @ k / np.sqrt(len(k))",
        "        new = max(top, s)",
        "        row = row * np.exp(top - new) + np.exp(s - new) * v",
        "        total, top = total * np.exp(top - new) + np.exp(s - new), new",
        "    out[h, i] = row / total",
        "return out",
    ),
    "torch": in_torch(REPEAT_T, SCORES_T, "return s.masked_fill(~keep, -torch.inf).softmax(-1) @ v"),
    "torch's own": in_torch(
        "return F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=keep, enable_gqa=True)[0]"
    ),
    "torch, views of groups": in_torch(
        "s = q.view(g, h // g * n, d) @ k.mT * d ** -0.5",
        "s = s.view(g, h // g, n, m) + torch.full((n, m), -torch.inf).triu(m - n + 1)",
        "return (s.flatten(1, 2).softmax(-1) @ v).view(h, n, d)",
    ),
    "torch, in double precision": in_torch(
        "q, k, v = q.double(), k.double(), v.double()",
        "return torch.stack([F.softmax((q[i] @ k[i * g // h].T / d**0.5).masked_fill(~keep, -1e30), 1) @ v[i * g // h]",
        "                    for i in range(h)])",
    ),
}  # fmt: skip

LOOP = "return np.stack([one(q[i], k[{0}], v[{0}]) for i in range(h)])"


def masked(mask: str) -> str:
    """Right in everything but which keys are kept."""
    return in_numpy(REPEAT, SCORES, f"return soft(np.where({mask}, s, -1e9)) @ v")


WRONG = {
    ("groups_in_turn",): (
        in_numpy(LOOP.format("i % g")),
        in_torch("k, v = k.repeat(h // g, 1, 1), v.repeat(h // g, 1, 1)", SCORES_T,
                 "return s.masked_fill(~keep, -torch.inf).softmax(-1) @ v"),
    ),
    ("first_kv_head",): (
        in_numpy(LOOP.format("0")),
        in_torch("k, v = k[:1], v[:1]", SCORES_T, "return s.masked_fill(~keep, -torch.inf).softmax(-1) @ v"),
    ),
    ("kv_averaged",): (
        in_numpy("k, v = k.mean(0), v.mean(0)", "return np.stack([one(x, k, v) for x in q])"),
        in_torch("k, v = k.mean(0, True), v.mean(0, True)", SCORES_T,
                 "return s.masked_fill(~keep, -1e9).softmax(-1) @ v"),
    ),
    ("groups_reversed",): (
        in_numpy(LOOP.format("g - 1 - i * g // h")),
        in_numpy("k, v = k[::-1], v[::-1]", REPEAT, SCORES, "return soft(np.where(keep(n, m), s, -np.inf)) @ v"),
    ),
    ("scale_by_model",): (
        in_numpy(REPEAT, SCORES, "return soft(np.where(keep(n, m), s / np.sqrt(h), -np.inf)) @ v"),
        in_torch(REPEAT_T, "s = q @ k.mT / math.sqrt(h * d)", "return s.masked_fill(~keep, -1e9).softmax(-1) @ v"),
    ),
    ("heads_in_turn",): (
        in_numpy("return np.stack([one(q[j * (h // g) + i], k[j], v[j]) for i in range(h // g) for j in range(g)])"),
        in_torch(REPEAT_T, SCORES_T, "out = s.masked_fill(~keep, -1e9).softmax(-1) @ v",
                 "return out.view(g, h // g, n, d).transpose(0, 1).reshape(h, n, d)"),
    ),
    ("no_mask",): (
        in_numpy(REPEAT, SCORES, "return soft(s) @ v"),
        in_torch("return F.scaled_dot_product_attention(q[None], k[None], v[None], enable_gqa=True)[0]"),
    ),
    ("top_left",): (
        masked("np.tri(n, m)"),
        in_torch("q, k, v = q[None], k[None], v[None]",
                 "return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)[0]"),
    ),
    ("future_seen",): (masked("np.tri(n, m, m - n + 1)"), masked("np.arange(m) - 1 <= np.arange(m - n, m)[:, None]")),
    ("own_hidden",): (
        masked("np.tri(n, m, m - n - 1)"),
        in_numpy(REPEAT, SCORES, "with np.errstate(all='ignore'):",
                 "    return soft(np.where(np.tri(n, m, m - n - 1), s, -np.inf)) @ v"),
    ),
    ("only_future",): (masked("~keep(n, m)"), masked("np.arange(m) > np.arange(m - n, m)[:, None]")),
    ("future_and_self",): (masked("np.triu(np.ones((n, m)), m - n)"), masked("~np.tri(n, m, m - n - 1, dtype=bool)")),
    ("transposed",): (masked("np.tri(m, n, m - n).T"), masked("np.arange(m) >= np.arange(n)[:, None] - m + n")),
    ("shifted_away",): (
        masked("np.tri(n, m, n - m)"),
        in_torch(REPEAT_T, SCORES_T, "return (s + torch.full((n, m), -1e9).triu(1 + n - m)).softmax(-1) @ v"),
    ),
    ("mask_after",): (
        in_numpy(REPEAT, SCORES, "return soft(s) * keep(n, m) @ v"),
        in_torch(REPEAT_T, SCORES_T, "return s.softmax(-1).tril(m - n) @ v"),
    ),
    ("zero_scores",): (
        in_numpy(REPEAT, SCORES, "return soft(s * keep(n, m)) @ v"),
        in_torch(REPEAT_T, SCORES_T, "return s.tril(m - n).softmax(-1) @ v"),
    ),
    ("zero_times_inf",): (
        in_numpy(REPEAT, SCORES, "with np.errstate(all='ignore'):",
                 "    return soft(s + (1 - keep(n, m)) * -np.inf) @ v"),
        in_torch(REPEAT_T, SCORES_T, "return (s - ~keep * torch.inf).softmax(-1) @ v"),
    ),
    ("weak_mask",): (
        in_numpy(REPEAT, SCORES, "return soft(np.where(keep(n, m), s, -10)) @ v"),
        in_torch(REPEAT_T, SCORES_T, "return (s + ~keep * -5.0).softmax(-1) @ v"),
        in_numpy(REPEAT, SCORES, "return soft(np.where(keep(n, m), s, -50)) @ v"),
    ),
    ("wrong_axis",): (
        in_numpy(REPEAT, SCORES, "return soft(np.where(keep(n, m), s, -np.inf), axis=1) @ v"),
        in_torch(REPEAT_T, SCORES_T, "return s.masked_fill(~keep, -1e9).softmax(-2) @ v"),
    ),
    ("no_scale",): (
        in_numpy("q = q * np.sqrt(d)", LOOP.format("i * g // h")),
        in_torch(REPEAT_T, "return (q @ k.mT).masked_fill(~keep, -torch.inf).softmax(-1) @ v"),
    ),
    ("scale_by_d",): (
        in_numpy("q = q / np.sqrt(d)", LOOP.format("i * g // h")),
        in_torch(REPEAT_T, "return (q @ k.mT / d).masked_fill(~keep, -torch.inf).softmax(-1) @ v"),
    ),
    ("scale_up",): (
        in_numpy("q = q * d", LOOP.format("i * g // h")),
        in_torch(REPEAT_T, "return (q @ k.mT * d**0.5).masked_fill(~keep, -torch.inf).softmax(-1) @ v"),
    ),
    ("whole_softmax",): (
        in_numpy(REPEAT, SCORES, "e = np.exp(s) * keep(n, m)", "return e / e.sum((1, 2), keepdims=True) @ v"),
        in_torch(REPEAT_T, SCORES_T,
                 "return s.masked_fill(~keep, -1e9).flatten(1).softmax(-1).view_as(s) @ v"),
    ),
    ("no_sum",): (
        in_numpy(REPEAT, SCORES, "return np.exp(s) * keep(n, m) @ v"),
        in_torch(REPEAT_T, SCORES_T, "return s.masked_fill(~keep, -torch.inf).exp() @ v"),
    ),
    ("keys_for_values",): (
        in_numpy("v = k", LOOP.format("i * g // h")),
        in_torch("q, k = q[None], k[None]",
                 "return F.scaled_dot_product_attention(q, k, k, attn_mask=keep, enable_gqa=True)[0]"),
    ),
    ("groups_in_turn", "no_mask"): (
        in_numpy("k, v = np.tile(k, (h // g, 1, 1)), np.tile(v, (h // g, 1, 1))", SCORES, "return soft(s) @ v"),
        in_torch("k, v = k.repeat(h // g, 1, 1), v.repeat(h // g, 1, 1)",
                 "return F.scaled_dot_product_attention(q[None], k[None], v[None])[0]"),
    ),
    ("shape",): (
        in_numpy(REPEAT, SCORES, "out = soft(np.where(keep(n, m), s, -np.inf)) @ v",
                 "return out.transpose(1, 0, 2).reshape(n, h * d)"),
        in_torch(REPEAT_T, SCORES_T, "return (s.masked_fill(~keep, -torch.inf).softmax(-1) @ v).transpose(0, 1)"),
    ),
    ("changed",): (
        in_numpy("out = np.stack([one(q[i], k[i * g // h], v[i * g // h]) for i in range(h)])", "k[0, 0] = 7",
                 "return out"),
        in_torch("q /= math.sqrt(d)", REPEAT_T, "return (q @ k.mT).masked_fill(~keep, -torch.inf).softmax(-1) @ v"),
    ),
    ("low_precision",): (
        in_numpy("q, k, v = (x.astype(np.float16) for x in (q, k, v))", REPEAT, SCORES,
                 "return (soft(np.where(keep(n, m), s, -np.inf)) @ v).astype(np.float16)"),
        in_torch(REPEAT_T, SCORES_T, "return (s.masked_fill(~keep, -torch.inf).softmax(-1) @ v).bfloat16()"),
    ),
}  # fmt: skip
