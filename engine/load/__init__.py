"""Synthetic traffic against any server of the OpenAI API: seeded, streaming, light; imports no torch.

    summary = run("http://127.0.0.1:8000", MIXES["demo"], duration_s=60, report=print)
    print(msgspec.json.encode(summary))

``run(url, mix, *, seed, model, duration_s, requests, timeout_s, report, stop) -> Summary`` blocks; see traffic.run.
``dataclasses.replace(MIXES["chat"], rate=2.0, abort=0.1)`` makes a mix of your own; see mix.Mix for the knobs.
"""

from .mix import MIXES, Lengths, Mix
from .summary import Percentiles, Progress, Summary
from .survey import LoadError
from .traffic import run

__all__ = ["MIXES", "Lengths", "LoadError", "Mix", "Percentiles", "Progress", "Summary", "run"]
