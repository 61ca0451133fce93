"""One file a rule: a pure generator ``check(window)`` of Findings. Whatever lies in this folder is asked."""

import importlib
import os
from collections.abc import Callable, Iterator

from inferdbg.diagnosis.finding import Finding
from inferdbg.facts.window import Window

Rule = Callable[[Window], Iterator[Finding]]


def all_rules() -> dict[str, Rule]:
    """Every rule by the name of its file."""
    files = os.listdir(os.path.dirname(__file__))
    names = sorted(name.removesuffix(".py") for name in files if name.endswith(".py") and name != "__init__.py")
    return {name: importlib.import_module(f"{__name__}.{name}").check for name in names}
