"""Names in the documents exist: files, verbs, options, make targets."""

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from inferdbg.cli.main import cli

from .source import FOLDERS, ROOT

DOCUMENTS = [path for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md") if (path := ROOT / name).is_file()]
_TOP = (*FOLDERS, "tests", "fixtures", "benchmarks")
_PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(_TOP)})/[\w./*-]*[\w/*]")
_COMMAND = re.compile(r"(?<![\w/.-])inferdbg ([a-z]+)((?: +[^\s`|;#&·→)]+)*)")
_MAKE = re.compile(r"(?<![\w-])make ([a-z-]+)\b")
_TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_named_in_a_document_exist(document: Path) -> None:
    named = _PATH.findall(document.read_text(encoding="utf-8"))
    assert [path for path in named if "NAME" not in path and not list(ROOT.glob(path.rstrip("/")))] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_verbs_and_options_named_in_a_document_exist(document: Path) -> None:
    for block in _code(document.read_text(encoding="utf-8")):
        for verb, rest in _COMMAND.findall(block):
            command = cli.get_command(click.Context(cli), verb)
            assert command is not None, f"inferdbg {verb}"
            known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
            used = {word.partition("=")[0] for word in _words(rest) if re.match(r"--?[a-z]", word)}
            assert used <= known, f"inferdbg {verb}{rest}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_named_in_a_document_exist(document: Path) -> None:
    targets = set(_TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    text = "\n".join(_code(document.read_text(encoding="utf-8")))
    assert set(_MAKE.findall(text)) <= targets


def _code(text: str) -> list[str]:
    """Lines of fenced or indented blocks, and what stands between backticks."""
    fenced = [
        line
        for block in re.findall(r"^```[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]
    indented = re.findall(r"^    .*$", text, re.MULTILINE)
    return [*fenced, *indented, *re.findall(r"`([^`\n]+)`", text)]


def _words(rest: str) -> list[str]:
    try:
        return shlex.split(rest.replace("[", " ").replace("]", " "))
    except ValueError:
        return rest.split()


def test_every_dependency_has_a_line_in_the_architecture() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: packages for name, packages in project["optional-dependencies"].items() if name != "test"}
    declared = {_package(line) for packages in (project["dependencies"], *extras.values()) for line in packages}
    table = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## Dependencies")[2]
    rows = re.findall(r"^\| ([a-z][^|]*?) (?:\(\w+\) )?\|", table, re.MULTILINE)
    assert {name for row in rows for name in row.split(", ")} - {"package"} == declared


def _package(requirement: str) -> str:
    return re.split(r"[><=;\[ ]", requirement)[0]
