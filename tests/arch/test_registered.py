"""What lies in a folder of plug-ins is known to the program: no verb, rule, view or probe is forgotten."""

import ast

import click

from inferdbg.cli.main import cli
from inferdbg.cli.target import probes_in_words
from inferdbg.diagnosis.rules import all_rules
from inferdbg.facts.snapshot import SECTIONS
from inferdbg.tui.views import VIEWS

from .source import ROOT, files


def stems(folder: str) -> set[str]:
    return {path.stem for path in (ROOT / folder).glob("*.py")} - {"__init__"}


def test_every_verb_rule_and_view_is_known_by_its_file() -> None:
    assert set(cli.list_commands(click.Context(cli))) == stems("inferdbg/cli/verbs")
    assert set(all_rules()) == stems("inferdbg/diagnosis/rules")
    assert {view.__module__.rpartition(".")[2] for view in VIEWS} == stems("tui/views")


def test_every_probe_is_listed_and_fills_sections_that_exist() -> None:
    """A probe is a class with ``sections`` and ``read``."""
    classes = [
        node.name
        for path in files("probes")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and {"sections", "read"} <= _names(node)
    ]
    listed = probes_in_words()
    assert len(classes) == len(listed), classes
    for name, sections, about in listed:
        assert set(sections) <= set(SECTIONS), name
        assert about.endswith("."), name


def _names(node: ast.ClassDef) -> set[str]:
    targets = {
        target.id
        for item in node.body
        if isinstance(item, ast.Assign)
        for target in item.targets
        if isinstance(target, ast.Name)
    }
    return targets | {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
