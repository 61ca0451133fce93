"""`inferdbg serve`: the bundled engine behind OpenAI's HTTP API, with its black box."""

import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from inferdbg import text
from inferdbg.cli.options import duration, example
from inferdbg.cli.output import Output
from inferdbg.errors import Exit, InferdbgError

if TYPE_CHECKING:
    from inferdbg.engine.loading import LoadedModel
    from inferdbg.probes.engine_observer import BlackBoxObserver

_COUNT = click.IntRange(min=1)
_THREADS_A_PROCESSOR = 4  # more only wait for each other, and thousands crash the library that runs them


def _thread_count(context: click.Context, option: click.Parameter, value: int | None) -> int | None:
    most = _THREADS_A_PROCESSOR * (os.cpu_count() or 1)
    if value is not None and value > most:
        raise click.BadParameter(f"at most {most} here, {_THREADS_A_PROCESSOR} a processor")
    return value


@click.command(
    short_help="Serve a model with the bundled engine:  inferdbg serve",
    epilog=example(
        "inferdbg serve", "inferdbg serve ./model.gguf --port 0", "inferdbg serve tiny --fault wedge:step=200"
    ),
)
@click.argument("model", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port to listen on; 0 takes any that is free.",
)
@click.option("--block-size", type=_COUNT, default=16, show_default=True, help="Tokens in a block of the KV cache.")
@click.option("--num-blocks", type=_COUNT, help="Blocks of the KV cache.  [default: what fits into 512 MiB]")
@click.option("--token-budget", type=_COUNT, default=512, show_default=True, help="Most tokens of one step.")
@click.option("--max-running", type=_COUNT, default=64, show_default=True, help="Most requests of one step.")
@click.option("--max-waiting", type=_COUNT, default=512, show_default=True, help="Most requests that may wait.")
@click.option("--max-model-len", type=_COUNT, help="Longest sequence in tokens.  [default: as model and cache allow]")
@click.option("--max-chunk", type=_COUNT, help="Most prompt tokens of one request in a step.  [default: all]")
@click.option("--no-prefix-cache", is_flag=True, help="Compute every prompt anew.")
@click.option(
    "--dtype",
    type=click.Choice(["bf16", "fp32"]),
    default="bf16",
    show_default=True,
    help="Type of weights and KV cache.",
)
@click.option(
    "--threads", type=_COUNT, callback=_thread_count, help="Threads to compute with.  [default: one a processor]"
)
@click.option("--blackbox-dir", type=click.Path(file_okay=False), help="Where its black box goes.  [default: memory]")
@click.option("--no-blackbox", is_flag=True, help="Keep no black box: nobody can look at it then.")
@click.option("--fault", "faults", multiple=True, metavar="SPEC", help="Plant a fault, as leak:step=100,every=50.")
@click.option("--drain", "drain_ns", type=duration, default="10s", show_default=True, help="Time to finish at the end.")
@click.option("--json", "as_json", is_flag=True, help="Say where it serves as one JSON object on stdout.")
@click.pass_obj
def command(
    out: Output,
    model: str | None,
    host: str,
    port: int,
    block_size: int,
    num_blocks: int | None,
    token_budget: int,
    max_running: int,
    max_waiting: int,
    max_model_len: int | None,
    max_chunk: int | None,
    no_prefix_cache: bool,
    dtype: str,
    threads: int | None,
    blackbox_dir: str | None,
    no_blackbox: bool,
    faults: tuple[str, ...],
    drain_ns: int,
    as_json: bool,
) -> int:
    """Serves MODEL: a Hugging Face folder, a GGUF file, or `tiny` for a small random one. Without MODEL the one that
    `make setup` fetched (SmolLM2-135M-Instruct), else `tiny`. Runs until Ctrl-C.

    Faults to plant: leak, stall, wedge, livelock, nan, kill, segfault, abort, corrupt, slow-sampler; each takes step=N,
    see engine/faults.py.
    """
    # Idle OpenMP threads spin for long by default, and on a busy machine they take the processor from those with work:
    # steps of 50 ms were seen to take a second. This must be said before torch loads.
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    # Prompts of ever new lengths fill oneDNN's cache of 1024 shapes with a gigabyte; decoding is as fast with 32.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "32")
    _let_signals_unwind()
    with _engine_extra():
        from inferdbg.engine.config import EngineConfig

        config = EngineConfig(
            block_size=block_size,
            num_blocks=num_blocks,
            token_budget=token_budget,
            max_running=max_running,
            max_waiting=max_waiting,
            max_model_len=max_model_len,
            max_chunk=max_chunk,
            prefix_caching=not no_prefix_cache,
        )
        from inferdbg.engine.engine import Engine
        from inferdbg.engine.faults import Faults
        from inferdbg.engine.server import bind, serve

        planted = Faults.parse(faults)
        listener = bind(host, port)
        loaded = _load(out, model, dtype, threads)
        observer = None if no_blackbox else _observer(blackbox_dir)
        engine = Engine(loaded, config, observer=observer, faults=planted)

    is_ready = False

    def ready(url: str) -> None:
        nonlocal is_ready
        is_ready = True
        box = observer.path if observer is not None else None
        if as_json:
            out.show_json({"url": url, "pid": os.getpid(), "model": loaded.name, "box": box})
            return
        look = f"inferdbg attach {os.getpid()}" if box else "it keeps no black box: only /metrics can be looked at"
        out.show(f"serving {text.safe(loaded.name)} at {url}   to look at it: {look}")

    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    try:
        for note in (loaded.note, *(observer.notes if observer is not None else ())):
            if note:
                out.say(note)
        serve(engine, listener=listener, drain_s=drain_ns / 1e9, ready=ready)
    finally:
        if not is_ready and observer is not None:
            observer.stopped(requests_in_flight=0)  # nobody has seen its box
    return Exit.FINE


def _load(out: Output, model: str | None, dtype: str, threads: int | None) -> "LoadedModel":
    from inferdbg.engine.loading import load

    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    out.progress(f"loading {model or 'the default model'} …")
    return load(model, dtype)


def _observer(folder: str | None) -> "BlackBoxObserver":
    """Clears old boxes of dead engines away, so that they do not pile up."""
    from inferdbg.probes.discovery import clear_old
    from inferdbg.probes.engine_observer import BlackBoxObserver

    clear_old(now_wall_ns=time.time_ns(), now_mono_ns=time.monotonic_ns(), folders=[folder] if folder else None)
    return BlackBoxObserver(folder)


def _let_signals_unwind() -> None:
    """SIGTERM and SIGHUP during the start raise, so that what was made is taken away; ``serve`` takes them over."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, end)


@contextlib.contextmanager
def _engine_extra() -> Iterator[None]:
    """A package that only the engine needs is named with how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "inferdbg":
            raise
        raise InferdbgError(
            f"serving needs the package {error.name}, which is not installed", "pip install 'inferdbg[engine]'"
        ) from error
