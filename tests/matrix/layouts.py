"""The same numbers laid out in memory in other ways. What lies between them is NaN: whoever reads it shows it."""

import torch


def in_layout(x: torch.Tensor, layout: str) -> torch.Tensor:
    """A tensor equal to x."""
    match layout:
        case "contiguous":
            return x.contiguous()
        case "positions first" if x.ndim == 4:
            return x.transpose(1, 2).contiguous().transpose(1, 2)
        case "sliced" if x.ndim >= 2:
            room = filled((*x.shape[:-2], x.shape[-2] + 2, 2 * x.shape[-1]), x)
            room = room[..., 1 : x.shape[-2] + 1, ::2]
            return room.copy_(x)
        case "expanded" if x.ndim == 4 and x.shape[0] > 0 and bool((x == x[:1]).all()):
            return x[:1].contiguous().expand(x.shape)
        case "offset":
            room = filled((x.numel() + 1,), x)[1:].view(x.shape)
            return room.copy_(x)
    return x.contiguous()


def filled(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Memory full of NaN, or of True where it is boolean."""
    return torch.full(shape, True if like.dtype == torch.bool else torch.nan, dtype=like.dtype)
