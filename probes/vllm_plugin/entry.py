"""Where vLLM calls in: ``register`` runs in every one of its processes and acts only where a Scheduler is made."""

import functools
import importlib
import logging
import multiprocessing
import os

from inferdbg.blackbox.writer import BlackBox, BoxError

from .hooking import Foreign
from .truth import Truth
from .watcher import Watcher

SWITCH = "INFERDBG"
FOLDER = "INFERDBG_BLACKBOX_DIR"
TRUTH = "INFERDBG_TRUTH"
_LOGGER = "vllm.inferdbg"  # below vLLM's own logger, so that our lines look like its own
_WATCHER = "_inferdbg_watcher"


def register() -> None:
    """Does nothing unless INFERDBG=1. Never raises."""
    if os.environ.get(SWITCH) != "1" or multiprocessing.current_process().name.startswith("VllmWorker"):
        return
    try:
        module = importlib.import_module("vllm.v1.core.sched.scheduler")
        watch(module.Scheduler)
    except Exception as error:  # noqa: BLE001  vLLM goes on without us
        logging.getLogger(_LOGGER).warning("inferdbg cannot watch this vLLM: %s: %s", type(error).__name__, error)


def watch(scheduler_class: Foreign) -> None:
    """From now on every Scheduler of this class, or of one made from it, keeps a black box."""
    original = scheduler_class.__init__
    if getattr(original, _WATCHER, False):
        return  # vLLM may call a plug-in more than once

    @functools.wraps(original)
    def begin(self: Foreign, *args: Foreign, **kwargs: Foreign) -> None:
        original(self, *args, **kwargs)
        attach(self)

    setattr(begin, _WATCHER, True)
    scheduler_class.__init__ = begin


def attach(scheduler: Foreign) -> "Watcher | None":
    """None, and a line in the log, when this Scheduler cannot be watched. Never raises."""
    logger = logging.getLogger(_LOGGER)
    made: list[BlackBox] = []

    def make_box(columns: "list[tuple[str, str, int]]") -> BlackBox:
        made.append(BlackBox.create(os.environ.get(FOLDER), columns))  # type: ignore[arg-type]
        return made[0]

    try:
        truth = os.environ.get(TRUTH)
        watcher = Watcher(scheduler, make_box, logger.warning, Truth(truth) if truth else None)
    except Exception as error:  # noqa: BLE001  vLLM goes on without us
        for box in made:
            box.stop(0)
        words = f"{error} ({FOLDER} names another folder)" if isinstance(error, BoxError) else str(error)
        logger.warning("inferdbg cannot watch this vLLM: %s: %s", type(error).__name__, words)
        return None
    scheduler.__dict__[_WATCHER] = watcher
    logger.info("inferdbg: the black box of this engine is %s", watcher.path)
    return watcher
