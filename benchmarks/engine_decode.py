"""Decode speed of the engine with its reference backend beside transformers' generate, on SmolLM2, in one run.

python -m benchmarks.engine_decode [--rounds 10] [--tokens 24] [--threads N] [--dtype bf16|fp32]

Same weights in the same memory, same prompts (48 tokens), machine and threads; greedy, no end token. In each round the
four cases follow one another, a second or two each, in turns one or the other first: whatever else the machine does
meets all of them. A step's time is what passes between one token of a stream and its next; the first tokens of a case
(prefill, warming up) are left out. Judged: the median over rounds of what the two took in the same round.

Promised: at 1 stream not slower than transformers; at 16 streams at least 4 times transformers' rate at 1 stream.
The floor: each step reads every weight once, at the speed that this machine reads memory in the same run.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TQDM_DISABLE", "1")

import torch

from inferdbg.engine.config import EngineConfig
from inferdbg.engine.engine import Engine
from inferdbg.engine.loading import LoadedModel, load
from inferdbg.engine.sampling_params import SamplingParams
from inferdbg.engine.tiny_model import write_folder
from inferdbg.engine.weights.layout import parts

STREAMS = (1, 16)
PROMPT_TOKENS = 48
SKIPPED_STEPS = 8
TEXT = (
    "The history of computing begins long before the first electronic machines. People counted with stones and "
    "beads, kept tallies on bones, and built gears that followed the planets. In the nineteenth century a "
    "mathematician drew an engine that could be told what to do with cards full of holes, and a countess wrote down "
    "how it might compose music one day. A hundred years later rooms full of valves broke ciphers and worked out "
    "tables of shells in flight, and since then each decade has made them smaller, cheaper and more numerous."
)


def prompts(model: LoadedModel, count: int) -> list[list[int]]:
    tokens = model.tokenizer.encode(TEXT)
    return [tokens[place * 3 : place * 3 + PROMPT_TOKENS] for place in range(count)]


def engine_steps(
    model: LoadedModel, given: Sequence[Sequence[int]], tokens: int
) -> tuple[list[float], list[list[int]]]:
    """Seconds between the tokens of a stream, with all streams decoding; and what each said."""
    engine = Engine(
        model, EngineConfig(num_blocks=512, prefix_caching=False, token_budget=PROMPT_TOKENS * max(STREAMS))
    )
    params = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True)
    for number, prompt in enumerate(given):
        engine.add_request(str(number), prompt, params)
    said: dict[str, list[int]] = {str(number): [] for number in range(len(given))}
    ends = []
    while engine.has_work():
        for output in engine.step():
            said[output.request_id] += output.token_ids
        ends.append(time.perf_counter())
    engine.close()
    return _between(ends), list(said.values())


def peer_steps(peer: object, given: Sequence[Sequence[int]], tokens: int) -> tuple[list[float], list[list[int]]]:
    """The same of transformers: one static batch, timed by a criterion that is asked after every token."""
    ends = []

    def note(ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        ends.append(time.perf_counter())
        return torch.zeros(len(ids), dtype=torch.bool)

    ids = torch.tensor(given)
    whole = peer.generate(  # type: ignore[attr-defined]
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=tokens,
        eos_token_id=None,
        pad_token_id=0,
        stopping_criteria=[note],
    )
    return _between(ends), whole[:, ids.shape[1] :].tolist()


def peer_of(model: LoadedModel) -> object:
    """The same model in transformers, and its weights the very same memory: on a virtual machine one half of it can be
    a third slower than the other."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder), model.config, model.weights)
        config = AutoConfig.from_pretrained(folder)
    tensors = model.weights.tensors
    rows = {
        name: tensors[part.target][part.first_row : part.first_row + part.shape[0]]
        for name, part in parts(model.config).items()
    }
    peer = AutoModelForCausalLM.from_config(config, dtype=model.weights.dtype).eval()
    lacks, strange = peer.load_state_dict(rows, strict=False, assign=True)
    peer.tie_weights()
    assert not strange, strange
    assert set(lacks) <= {"lm_head.weight"}, lacks
    assert peer.get_output_embeddings().weight.data_ptr() == tensors.get("head", tensors["embedding"]).data_ptr()
    return peer


def _between(ends: Sequence[float]) -> list[float]:
    steps = [after - before for before, after in pairwise(ends)]
    return steps[SKIPPED_STEPS:]


def read_speed() -> float:
    """Bytes a second of a sum over 512 MiB, best of 5."""
    numbers = torch.ones(2**27)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        numbers.sum()
        best = min(best, time.perf_counter() - start)
    return numbers.nbytes / best


def compare(dtype: str, rounds: int, tokens: int) -> bool:
    model = load(None, dtype)
    peer = peer_of(model)
    kinds: dict[str, Callable[[Sequence[Sequence[int]]], tuple[list[float], list[list[int]]]]] = {
        "engine": lambda given: engine_steps(model, given, tokens),
        "transformers": lambda given: peer_steps(peer, given, tokens),
    }
    steps: dict[tuple[str, int], list[list[float]]] = {(kind, streams): [] for kind in kinds for streams in STREAMS}
    agreed = compared = 0
    for number in range(rounds):
        for streams in STREAMS:
            said = []
            for kind, run in list(kinds.items())[:: -1 if number % 2 else 1]:
                times, words = run(prompts(model, streams))
                steps[kind, streams].append(times)
                said.append(words)
            agreed += sum(ours == theirs for ours, theirs in zip(*said, strict=True))
            compared += streams
    middle = {case: [statistics.median(times) for times in taken] for case, taken in steps.items()}

    def times_faster(case: tuple[str, int]) -> float:
        """Its rate by that of transformers at 1 stream."""
        in_rounds = zip(middle[case], middle["transformers", 1], strict=True)
        return statistics.median(case[1] * theirs / ours for ours, theirs in in_rounds)

    floor = model.weights.size_bytes / read_speed()
    size = f"{model.name}, {model.weights.size_bytes / 1e6:.0f} MB of weights"
    print(f"\n{dtype}: {size}, floor {floor * 1e3:.1f} ms a step")
    print(f"  {'':14}{'streams':>8}{'ms a step':>11}{'least':>8}{'tokens/s':>10}{'of transformers, 1 stream':>27}")
    for case, taken in middle.items():
        step, least = statistics.median(taken) * 1e3, min(map(min, steps[case])) * 1e3
        rate = case[1] / step * 1e3
        print(f"  {case[0]:14}{case[1]:8}{step:11.1f}{least:8.1f}{rate:10.1f}{times_faster(case):26.2f}x")
    print(f"  same tokens in {agreed} of {compared} answers of {tokens} tokens")
    holds = True
    for promise, case, limit in (
        ("1 stream beside transformers", ("engine", 1), 1.0),
        ("16 streams beside transformers' one", ("engine", 16), 4.0),
    ):
        value = times_faster(case)
        holds &= value >= limit
        print(f"  {'ok    ' if value >= limit else 'FAILED'} {promise}: {value:.2f}x, at least {limit:.0f}x")
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--dtype", choices=("bf16", "fp32"), action="append")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{options.threads} threads, {options.rounds} rounds, torch {torch.__version__}")
    held = [compare(dtype, options.rounds, options.tokens) for dtype in options.dtype or ("bf16", "fp32")]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
