"""Right: greedy output is token-identical to transformers, whatever the batching, chunks, reuse, preemption and copies.

In fp32 every run below must give exactly the tokens of transformers' own model, one prompt at a time:

    random small Llamas   every combination of batching, chunk 1/7/64, prefix reuse, forced preemption, copy on write
    SmolLM2               50 mixed prompts; everything on, each switched off alone, everything off

A run in which a feature was asked for and did not happen (no preemption, no prefix hit, no copy) is a failure too.
In bf16 the two programs round differently: a divergence is allowed only where the two best logits of transformers lie
no further apart than BF16_TOLERANCE.

    python -m benchmarks.correctness [--quick] [llamas | fp32 | bf16]...
"""

import itertools
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("GOMP_SPINCOUNT", "20000")  # as `inferdbg serve` sets it
os.environ.update(
    HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1", TRANSFORMERS_VERBOSITY="error", TQDM_DISABLE="1"
)

import torch

from inferdbg.engine.config import EngineConfig
from inferdbg.engine.engine import Engine
from inferdbg.engine.loading import LoadedModel, find_default_model, load
from inferdbg.engine.sampling_params import SamplingParams
from inferdbg.engine.state import Counter
from inferdbg.engine.weights.layout import DTYPES

BF16_TOLERANCE = 0.75
"""At the first output token of the 50 prompts, transformers' own bf16 logits lie up to 0.37 (mean 0.16) from its fp32
ones where the two best are, and the engine's up to 0.37 (mean 0.14): two logits can move by twice that against each
other. The logits reach 35, where neighbouring bf16 numbers are 0.25 apart."""


class Shape(NamedTuple):
    """A random Llama. ``hidden`` is a multiple of ``heads``, as transformers insists; head sizes are free."""

    heads: int
    kv_heads: int
    head: int
    hidden: int
    layers: int
    tied: bool
    bias: bool = False


SHAPES = (
    Shape(heads=4, kv_heads=4, head=16, hidden=64, layers=2, tied=False),
    Shape(heads=8, kv_heads=2, head=12, hidden=96, layers=2, tied=True),
    Shape(heads=6, kv_heads=3, head=40, hidden=240, layers=1, tied=False, bias=True),
    Shape(heads=5, kv_heads=1, head=24, hidden=60, layers=3, tied=True),
    Shape(heads=9, kv_heads=3, head=10, hidden=90, layers=2, tied=False),
)


class Switches(NamedTuple):
    chunk: int
    batching: bool
    reuse: bool
    preemption: bool
    copying: bool

    def __str__(self) -> str:
        on = [name for name in ("batching", "reuse", "preemption", "copying") if getattr(self, name)]
        return f"chunk {self.chunk:2}  {' '.join(on) or 'all off'}"


class Reference(NamedTuple):
    """Greedy tokens of one prompt, and at each of them the gap between the two best logits."""

    tokens: list[int]
    gaps: list[float]


@torch.inference_mode()
def reference(model: torch.nn.Module, prompt: Sequence[int], count: int) -> Reference:
    """Token by token with transformers' own cache; end-of-sequence tokens do not end it."""
    tokens: list[int] = []
    gaps: list[float] = []
    step = torch.tensor([list(prompt)])
    cache = None
    for _ in range(count):
        answer = model(input_ids=step, past_key_values=cache, use_cache=True)
        cache = answer.past_key_values
        best = answer.logits[0, -1].float().topk(2).values
        tokens.append(int(answer.logits[0, -1].argmax()))
        gaps.append(float(best[0] - best[1]))
        step = torch.tensor([[tokens[-1]]])
    return Reference(tokens, gaps)


def ours(
    model: LoadedModel, prompts: Sequence[Sequence[int]], count: int, switches: Switches, block_size: int
) -> tuple[dict[tuple[int, int], list[int]], list[str]]:
    """Tokens by (prompt, continuation), and which of the features asked for did not happen."""
    blocks_each = [-(-(len(prompt) + count) // block_size) for prompt in prompts]
    running = 6 if switches.batching else 1
    copies = 2 if switches.copying else 1
    roomy = running * copies * max(blocks_each) + len(prompts)
    config = EngineConfig(
        block_size=block_size,
        num_blocks=max(blocks_each) * copies + 3 if switches.preemption else roomy,
        token_budget=max(64, running * copies),
        max_running=running * copies,
        max_waiting=len(prompts) * copies,
        max_chunk=switches.chunk,
        prefix_caching=switches.reuse,
    )
    engine = Engine(model, config)
    for index, prompt in enumerate(prompts):
        params = SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=True, n=copies)
        engine.add_request(str(index), list(prompt), params)
    found: dict[tuple[int, int], list[int]] = {}
    while engine.has_work():
        for output in engine.step():
            found.setdefault((int(output.request_id), output.index), []).extend(output.token_ids)
            if output.finish_reason not in (None, "length"):
                raise SystemExit(f"request {output.request_id} ended with {output.finish_reason}: {output.failure}")
    problems = engine.scheduler.check()
    counters = engine.columns["counters"]
    missing = [f"check(): {problem}" for problem in problems or ()]
    for wanted, counter, name in (
        (switches.preemption and switches.batching, Counter.PREEMPTED, "preemption"),
        (switches.reuse, Counter.PREFIX_HIT_TOKENS, "prefix hit"),
        (switches.copying, Counter.COPIED_BLOCKS, "copy on write"),
    ):
        if wanted and not counters[counter]:
            missing.append(f"no {name} happened")
        if not wanted and counters[counter] and name != "preemption":
            missing.append(f"{counters[counter]} x {name} though it is off")
    engine.close()
    return found, missing


def verdict(
    expected: Sequence[Reference], found: dict[tuple[int, int], list[int]], copies: int, tolerance: float | None
) -> tuple[list[str], list[float]]:
    """What differs where it must not, and the logit gaps at the divergences that are allowed."""
    wrong: list[str] = []
    gaps: list[float] = []
    for index, want in enumerate(expected):
        for copy in range(copies):
            have = found.get((index, copy), [])
            at = next((i for i, (a, b) in enumerate(zip(want.tokens, have, strict=False)) if a != b), None)
            if at is None and len(have) == len(want.tokens):
                continue
            if at is not None and tolerance is not None and want.gaps[at] <= tolerance:
                gaps.append(want.gaps[at])
                continue
            gap = f", best two logits {want.gaps[at]:.4f} apart" if at is not None else ""
            wrong.append(f"prompt {index}.{copy} differs at output token {at}{gap}")
    return wrong, gaps


def every_switch() -> list[Switches]:
    every = itertools.product((1, 7, 64), (True, False), (True, False), (True, False), (True, False))
    return [s for s in map(Switches._make, every) if s.batching or not s.preemption]


def one_by_one() -> list[Switches]:
    everything = Switches(64, True, True, True, True)
    alone = [everything._replace(**{name: False}) for name in ("batching", "reuse", "preemption", "copying")]
    alone[0] = alone[0]._replace(preemption=False)
    return [
        everything,
        everything._replace(chunk=7),
        everything._replace(chunk=1),
        *alone,
        Switches(64, False, False, False, False),
    ]


def mixed_prompts(vocabulary: int, count: int, seed: int) -> list[list[int]]:
    """Lengths 1 to 90; a third begin with the same 37 tokens, some are the same twice."""
    rng = random.Random(seed)
    shared = [rng.randrange(vocabulary) for _ in range(37)]
    prompts = []
    for index in range(count):
        own = [rng.randrange(vocabulary) for _ in range(rng.choice((1, 3, 9, 17, 33, 53)))]
        prompts.append(shared + own if index % 3 == 0 else own)
    prompts[-1] = list(prompts[0])
    return prompts


def random_llamas(folder: Path, *, quick: bool) -> bool:
    from transformers import LlamaConfig, LlamaForCausalLM

    from inferdbg.engine.tiny_model import tiny_tokenizer

    holds = True
    for index, shape in enumerate(SHAPES[: 2 if quick else None]):
        torch.manual_seed(index)
        config = LlamaConfig(
            hidden_size=shape.hidden,
            intermediate_size=shape.hidden * 2 + 6,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            head_dim=shape.head,
            vocab_size=512,
            max_position_embeddings=512,
            tie_word_embeddings=shape.tied,
            attention_bias=shape.bias,
            mlp_bias=shape.bias,
            initializer_range=0.2,
        )
        theirs = LlamaForCausalLM(config).eval()
        path = folder / f"llama-{index}"
        theirs.save_pretrained(path)
        tiny_tokenizer().backend.save(str(path / "tokenizer.json"))
        model = load(path, dtype="fp32")
        prompts = mixed_prompts(512, 12, seed=index)
        expected = [reference(theirs, prompt, 24) for prompt in prompts]
        print(f"random Llama {shape}")
        for switches in every_switch()[:: 6 if quick else 1]:
            holds &= report(model, prompts, expected, switches, block_size=4)
    return holds


def smollm2(dtype: str, *, quick: bool) -> bool:
    path = find_default_model()
    if path is None:
        print("FAILED SmolLM2 is not installed: make setup")
        return False
    prompts = smollm2_prompts(load(path, dtype="fp32"), 10 if quick else 50)
    model = load(path, dtype=dtype)
    theirs = transformers_model(path, dtype)
    begun = time.monotonic()
    expected = [reference(theirs, prompt, 32) for prompt in prompts]
    del theirs
    print(f"SmolLM2 {dtype}, {len(prompts)} prompts (transformers: {time.monotonic() - begun:.0f} s)")
    tolerance = BF16_TOLERANCE if dtype == "bf16" else None
    runs = one_by_one()[:: 4 if quick else 1]
    held = [report(model, prompts, expected, run, block_size=16, tolerance=tolerance) for run in runs]
    return all(held)


def smollm2_prompts(model: LoadedModel, count: int) -> list[list[int]]:
    """Chat, prose, code, numbers, other scripts; every fifth under the same system prompt."""
    tokenizer = model.tokenizer
    asked = (
        "What is the capital of France?",
        "Write a haiku about the sea.",
        "def fibonacci(n):\n    ",
        "1, 1, 2, 3, 5, 8, 13,",
        "Die Katze sitzt auf dem",
        "吾輩は猫である。",
        "Once upon a time, in a land far away, there lived a king who",
        "SELECT name, count(*) FROM orders WHERE",
        "The three laws of thermodynamics are",
        "Translate to French: good morning 👋",
    )
    system = "You are a careful assistant. Answer in one short sentence and say so when you do not know. " * 2
    prompts = []
    for index in range(count):
        text = asked[index % len(asked)] + (f" ({index})" if index >= len(asked) else "")
        if index % 5 == 0:
            chat = [{"role": "system", "content": system}, {"role": "user", "content": text}]
            prompts.append(tokenizer.apply_chat_template(chat))
        else:
            prompts.append(tokenizer.encode(text * (1 + index % 4)))
    return prompts


def transformers_model(path: Path, dtype: str) -> torch.nn.Module:
    import transformers

    options = {"dtype": DTYPES[dtype]}
    if hasattr(transformers, "GgufConfig"):
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    return transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, **options).eval()


def report(
    model: LoadedModel,
    prompts: Sequence[Sequence[int]],
    expected: Sequence[Reference],
    switches: Switches,
    *,
    block_size: int,
    tolerance: float | None = None,
) -> bool:
    begun = time.monotonic()
    found, missing = ours(model, prompts, len(expected[0].tokens), switches, block_size)
    wrong, gaps = verdict(expected, found, 2 if switches.copying else 1, tolerance)
    problems = wrong + missing
    allowed = f"   {len(gaps)} divergences, largest gap {max(gaps):.3f}" if gaps else ""
    seconds = time.monotonic() - begun
    print(f"  {'FAILED' if problems else 'ok    '} {seconds:6.1f} s  {switches}{allowed}", flush=True)
    for problem in problems[:5]:
        print(f"         {problem}")
    return not problems


def main(arguments: list[str]) -> int:
    warnings.simplefilter("ignore", FutureWarning)  # transformers renames an argument: both names work
    quick = "--quick" in arguments
    parts = [part for part in arguments if part != "--quick"] or ["llamas", "fp32", "bf16"]
    holds = True
    if "llamas" in parts:
        torch.set_num_threads(1)  # what is this small only waits for the second thread
        with tempfile.TemporaryDirectory() as folder:
            holds &= random_llamas(Path(folder), quick=quick)
    torch.set_num_threads(2)
    for dtype in ("fp32", "bf16"):
        if dtype in parts:
            holds &= smollm2(dtype, quick=quick)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
