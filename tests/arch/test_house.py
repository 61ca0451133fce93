"""The house stands as ARCHITECTURE.md draws it: links, imports, one sentence at the head of each file."""

import ast
import os
import sys
from pathlib import Path

import pytest

from .source import FOLDERS, ROOT, files, imports

LINKED = FOLDERS[1:]


@pytest.mark.parametrize("folder", LINKED)
def test_a_code_folder_is_linked_into_the_package(folder: str) -> None:
    assert os.readlink(ROOT / "inferdbg" / folder) == f"../{folder}"
    assert (ROOT / folder / "__init__.py").is_file()


@pytest.mark.parametrize("folder", LINKED)
def test_imports_inside_a_linked_folder_are_relative(folder: str) -> None:
    absolute = [
        found.where
        for path in files(folder)
        for found in imports(path)
        if found.level == 0 and f"{found.module}.".startswith((f"inferdbg.{folder}.", f"{folder}."))
    ]
    assert absolute == []


@pytest.mark.parametrize("folder", LINKED)
def test_imports_between_folders_are_absolute(folder: str) -> None:
    escaping = [
        found.where
        for path in files(folder)
        for found in imports(path)
        if found.level > len(path.relative_to(ROOT / folder).parts)
    ]
    assert escaping == []


def test_relative_imports_inside_the_package_stay_in_their_folder() -> None:
    escaping = [
        found.where
        for path in files("inferdbg")
        for found in imports(path)
        if found.level >= len(path.relative_to(ROOT / "inferdbg").parts) and found.level
    ]
    assert escaping == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_file_begins_with_what_it_is_for(folder: str) -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in files(folder)
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_the_black_boxs_writer_brings_nothing_along() -> None:
    """It is carried into other people's interpreters."""
    writer = ROOT / "inferdbg" / "blackbox" / "writer.py"
    foreign = [
        found.module for found in imports(writer) if found.module.partition(".")[0] not in sys.stdlib_module_names
    ]
    assert foreign == []


@pytest.mark.parametrize("name", ["block_pool", "prefix_cache", "scheduler", "request"])
def test_scheduling_imports_no_torch(name: str) -> None:
    path = ROOT / "engine" / f"{name}.py"
    assert "torch" not in {found.module.partition(".")[0] for found in imports(path) if not found.inside}


HEAVY = ("torch", "textual", "numpy", "pynvml", "urllib3", "psutil", "transformers", "starlette", "uvicorn")


@pytest.mark.parametrize("path", sorted((ROOT / "inferdbg" / "cli").rglob("*.py")), ids=lambda path: path.stem)
def test_the_command_line_loads_heavy_things_only_inside_its_commands(path: Path) -> None:
    at_top = {found.module.partition(".")[0] for found in imports(path) if not found.inside}
    assert at_top.isdisjoint(HEAVY)
    screens = [found.module for found in imports(path) if not found.inside and found.module.startswith("inferdbg.tui")]
    assert screens == []
