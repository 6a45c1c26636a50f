"""The cases of memory: a window against a dense mask, and causal tiles at three lengths against all scores at once."""

from __future__ import annotations

from attnbook.bench.case import CannotRun, Finding, Setting
from attnbook.bench.memory import extra

LENGTHS = (2_048, 4_096, 8_192)


def window_memory(setting: Setting) -> Finding:
    """A causal window of 512 of 16 384 tokens, 8 heads, d 64: what SDPA with a mask takes over what the tiles take."""
    _only_here(setting)
    t, window = setting.length(16_384), setting.length(512)
    ours, theirs = (max(extra(side, t, window), 0.1) for side in ("tiled window", "sdpa window"))
    return Finding(theirs / ours, {"tiled": ours, "sdpa, mask": theirs}, "MiB", ran="tiled")


def memory_flat(setting: Setting) -> Finding:
    """Causal tiles: the most memory at 2 048 to 8 192 tokens over the least; all scores at once grow 16-fold."""
    _only_here(setting)
    lengths = [setting.length(t) for t in LENGTHS]
    ours = {f"tiled {t}": max(extra("tiled causal", t, 0), 0.1) for t in lengths}
    naive = extra("naive causal", lengths[-1], 0)
    most = max(ours.values()) / min(ours.values())
    return Finding(most, ours | {f"naive {lengths[-1]}": naive}, "MiB", ran="tiled")


def _only_here(setting: Setting) -> None:
    if setting.device != "cpu":
        raise CannotRun("memory is measured on the CPU")
