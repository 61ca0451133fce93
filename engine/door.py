"""Refuses at the door what could never run, with the numbers, instead of letting it wait for ever."""

from collections.abc import Sequence

from .config import Limits
from .errors import BadRequest, Overloaded
from .sampling_params import SamplingParams


def refuse_impossible(limits: Limits, prompt: Sequence[int], params: SamplingParams, *, waiting: int) -> None:
    """Raises BadRequest when the request can never fit, Overloaded when ``waiting`` requests leave no room for it."""
    if not prompt:
        raise BadRequest("the prompt has no tokens", param="prompt")
    total = len(prompt) + params.max_tokens
    if total > limits.max_model_len:
        room = limits.max_model_len - len(prompt)
        raise BadRequest(
            f"a prompt of {len(prompt)} tokens and max_tokens {params.max_tokens} make {total}, "
            f"and a sequence may have {limits.max_model_len}",
            f"at most max_tokens={room}" if room > 0 else "shorten the prompt",
            param="max_tokens" if room > 0 else "prompt",
        )
    needs = -(-(total - 1) // limits.block_size)  # nothing is computed on top of the last token
    if needs > limits.num_blocks:
        raise BadRequest(
            f"the request needs {needs} blocks of {limits.block_size} tokens and the whole cache has "
            f"{limits.num_blocks}",
            "lower max_tokens, shorten the prompt or serve with a larger cache",
            param="max_tokens",
        )
    most = min(limits.max_running, limits.max_waiting)
    if params.n > most:
        raise BadRequest(f"n is {params.n} and at most {most} sequences run at a time", param="n")
    if waiting + params.n > limits.max_waiting:
        raise Overloaded(f"{waiting} requests wait and at most {limits.max_waiting} may", "try again later")
