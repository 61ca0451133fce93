"""Every kernel of the reference backend in plain torch: the truth that faster backends are compared with.

Letters in shapes: T tokens of a step, R requests, S requests that get logits, H hidden size, N heads, K kv_heads,
G = N / K heads of a group, D head size, I intermediate size, V vocabulary, L longest sequence of a group of requests,
B block size. Figures beside a kernel count multiplications and additions (FLOPs) and the bytes it must move at least:
weights and cache read once, inputs read, outputs written; ``s`` is the size of an item.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F


def embed(tokens: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """[T] int64, [V, H] -> [T, H]. FLOPs 0; bytes 2·T·H·s."""
    return F.embedding(tokens, table)


def rms_norm(hidden: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """[T, H], [H] -> [T, H]; the mean square is taken in fp32. FLOPs 4·T·H; bytes 2·T·H·s."""
    return F.rms_norm(hidden, weight.shape, weight, eps)


def linear(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """[T, H], [O, H], [O] -> [T, O]. FLOPs 2·T·H·O; bytes (H·O + T·(H + O))·s."""
    if inputs.dtype != torch.bfloat16 or len(inputs) > 1:
        return F.linear(inputs, weight, bias)
    product = torch.mv(weight, inputs[0]).unsqueeze(0)  # oneDNN is 1.2 to 1.6 times slower on a matrix of one row
    return product if bias is None else product.add_(bias)


def linear_any_order(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """``linear`` for results that need not lie in memory row by row: oneDNN multiplies bf16 up to 1.7 times faster when
    the thin matrix is on the right."""
    if inputs.dtype != torch.bfloat16 or not 1 < len(inputs) <= 512:
        return linear(inputs, weight, bias)
    product = torch.mm(weight, inputs.t()).t()
    return product if bias is None else product.add_(bias)


def rotate(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of [T, heads, D] by [T, 1, D] each: dimension i turns with i + D/2. ``sine`` has its first half
    negated, so that x·cos + swap(x)·sin is the whole formula. FLOPs 3·T·heads·D; bytes 2·T·heads·D·s.

    Source: https://arxiv.org/abs/2104.09864, in the order of halves that Hugging Face uses.
    """
    return torch.addcmul(heads * cosine, heads.roll(heads.shape[-1] // 2, -1), sine)


def write_kv(
    keys: torch.Tensor, values: torch.Tensor, key_slots: torch.Tensor, value_slots: torch.Tensor, slots: torch.Tensor
) -> None:
    """Puts [T, K, D] of K and V where they belong in the cache [num_blocks·B, K, D]; ``slots`` [T] int64: block·B +
    offset. FLOPs 0; bytes 4·T·K·D·s."""
    key_slots.index_copy_(0, slots, keys)
    value_slots.index_copy_(0, slots, values)


def gather_blocks(cache: torch.Tensor, blocks: torch.Tensor | slice, requests: int, length: int) -> torch.Tensor:
    """The first ``length`` tokens of each request out of [num_blocks, B, K, D] -> [requests, length, K, D].

    ``blocks``: numbers, those of one request after another's, equally many each; a slice for blocks in a row, which are
    read where they lie. FLOPs 0; bytes 2·requests·length·K·D·s, for a slice 0.
    """
    found = cache[blocks] if isinstance(blocks, slice) else cache.index_select(0, blocks)
    return found.view(requests, -1, *cache.shape[2:])[:, :length]


def attend_decode(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """One token of each request: [R, N, D] over [R, L, K, D] -> [R, N, D]. ``mask`` [R, 1, 1, L] is added to the
    scores: 0 for a request's own tokens, -inf behind them; None when all have L.

    The G heads that share keys go in as G queries of one head, so each key is read once. With c tokens of context in
    all: FLOPs 4·c·N·D; bytes 2·c·K·D·s + 2·R·N·D·s.
    """
    requests, heads, head_size = queries.shape
    grouped = queries.reshape(requests, keys.shape[2], -1, head_size)
    mixed = F.scaled_dot_product_attention(grouped, keys.transpose(1, 2), values.transpose(1, 2), attn_mask=mask)
    return mixed.reshape(requests, heads, head_size)


def attend_prefill(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """The chunk of one request: [T, N, D] over [L, K, D] -> [T, N, D]. ``mask`` [T, L] is added to the scores: -inf
    for what comes after a token; None when there is no context (L = T) and plain causality holds.

    With p pairs of a token and what it sees: FLOPs 4·p·N·D; bytes 2·L·K·D·s + 2·T·N·D·s.
    """
    queries, keys, values = (part.transpose(0, 1).unsqueeze(0) for part in (queries, keys, values))
    mixed = F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, is_causal=mask is None, enable_gqa=queries.shape[1] != keys.shape[1]
    )
    return mixed[0].transpose(0, 1)


def swiglu(
    hidden: torch.Tensor,
    gate_up: torch.Tensor,
    gate_up_bias: torch.Tensor | None,
    down: torch.Tensor,
    down_bias: torch.Tensor | None,
) -> torch.Tensor:
    """[T, H], [2·I, H], [H, I] -> [T, H]: down(silu(gate) · up). FLOPs 6·T·H·I; bytes (3·H·I + 2·T·H)·s.

    Source: https://arxiv.org/abs/2002.05202
    """
    gate, up = linear_any_order(hidden, gate_up, gate_up_bias).chunk(2, dim=-1)
    return linear_any_order(F.silu(gate).mul_(up), down, down_bias)


def lm_head(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """[S, H], [V, H] -> [S, V] fp32, row by row. FLOPs 2·S·H·V; bytes (H·V + S·H)·s + 4·S·V."""
    return linear_any_order(hidden, weight).to(torch.float32, memory_format=torch.contiguous_format)


def rope_frequencies(
    head_size: int, theta: float, *, factor: float = 1.0, divisors: torch.Tensor | None = None
) -> torch.Tensor:
    """Radians a position of each pair of dimensions, [D/2] fp32: theta^(-2i/D), divided by ``factor`` and pair by pair
    by ``divisors``."""
    frequencies = 1.0 / (theta ** (torch.arange(0, head_size, 2, dtype=torch.float32) / head_size))
    return frequencies / factor if divisors is None else frequencies / factor / divisors


def llama3_divisors(
    frequencies: torch.Tensor, factor: float, low: float, high: float, original_positions: int
) -> torch.Tensor:
    """What Llama 3.1 divides each frequency by, [D/2]: 1 for waves shorter than original_positions / high, ``factor``
    for those longer than original_positions / low, and between them a ramp of the factor's inverse.

    Source: https://github.com/meta-llama/llama-models/blob/main/models/llama3/model.py
    """
    waves_in_context = original_positions * frequencies / (2 * torch.pi)
    ramp = ((waves_in_context - low) / (high - low)).clamp(0.0, 1.0)
    return 1.0 / ((1.0 - ramp) / factor + ramp)
