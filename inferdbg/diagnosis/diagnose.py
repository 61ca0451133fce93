"""Asks every rule and puts the answers in causal order: what explains another comes before it."""

from inferdbg.diagnosis.finding import Finding
from inferdbg.diagnosis.rules import all_rules
from inferdbg.facts.window import Window

_SEVERITIES = ("dead", "stuck", "wrong", "slow", "note")


def diagnose(window: Window) -> list[Finding]:
    """What is wrong with the target as the Window shows it; the first one is the verdict."""
    return ranked([finding for rule in all_rules().values() for finding in rule(window)])


def ranked(findings: list[Finding]) -> list[Finding]:
    """The worst first, among equals what began first; what a finding explains stands right below it."""
    by_weight = sorted(findings, key=_weight)
    explained = {cause for finding in findings for cause in finding.explains if cause != finding.cause}
    order: list[Finding] = []

    def place(finding: Finding) -> None:
        if finding in order:
            return
        order.append(finding)
        for other in by_weight:
            if other.cause in finding.explains:
                place(other)

    for finding in by_weight:
        if finding.cause not in explained:
            place(finding)
    for finding in by_weight:  # such that explain each other in a circle
        place(finding)
    return order


def _weight(finding: Finding) -> tuple[int, float, str]:
    began = float("inf") if finding.since_ns is None else finding.since_ns
    return _SEVERITIES.index(finding.severity), began, finding.cause
