"""A plug-in for vLLM in tests: in the folder that FAULTY names, a file says what shall go wrong.

output    the thread that sends answers dies, of a value that nothing can serialise
hang      the worker's next step sleeps for as many seconds as the file says, as any process that waits
"""

import os
import time
from pathlib import Path


def register() -> None:
    folder = os.environ.get("FAULTY")
    if folder:
        _kill_output(Path(folder, "output"))
        _hang_worker(Path(folder, "hang"))


def _kill_output(trigger: Path) -> None:
    from vllm.v1.engine.core import EngineCoreProc  # type: ignore[import-not-found]

    step = EngineCoreProc._process_engine_step

    def stepped(engine: object, *arguments: object) -> object:
        if trigger.exists():
            trigger.unlink()
            engine.output_queue.put_nowait((0, lambda: None))  # type: ignore[attr-defined]
        return step(engine, *arguments)

    EngineCoreProc._process_engine_step = stepped


def _hang_worker(trigger: Path) -> None:
    from vllm.v1.worker.worker_base import WorkerWrapperBase  # type: ignore[import-not-found]

    execute = WorkerWrapperBase.execute_model

    def executed(worker: object, *arguments: object, **options: object) -> object:
        if trigger.exists():
            seconds = float(trigger.read_text())
            trigger.unlink()
            time.sleep(seconds)
        return execute(worker, *arguments, **options)

    WorkerWrapperBase.execute_model = executed
