"""`inferdbg watch`: acts when a condition holds, so that there is evidence before somebody restarts the server."""

import contextlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from inferdbg import text
from inferdbg.cli import looking, naming, target
from inferdbg.cli.depth import Wanted
from inferdbg.cli.ending import Ending
from inferdbg.cli.options import depth_options, duration, example, interval_option
from inferdbg.cli.output import Output
from inferdbg.diagnosis.conditions import Condition, Incidents, parse
from inferdbg.errors import Exit, InferdbgError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import BinaryIO

    from inferdbg.collect.live import LiveSource
    from inferdbg.diagnosis.finding import Finding
    from inferdbg.facts.window import Window
    from inferdbg.record.writer import RecordingWriter

KEPT_NS = 5 * 60 * 10**9
"""What a recording holds of the time before its incident."""
_PATIENCE_NS = 15 * 10**9
"""After that what is not known is not going to be."""


def condition(value: str) -> Condition:
    """A click type, by its name CONDITION in the help."""
    try:
        return parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(
    short_help="Act when something happens:  inferdbg watch 58 --on 'stall>10s' --do record",
    epilog=example(
        "inferdbg watch 58 --on 'stall>10s|itl.p95>200ms' --do record --do stacks",
        "inferdbg watch 58 --on dead --exec 'systemctl restart vllm'",
    ),
)
@click.argument("target_name", metavar="[TARGET]", required=False)
@click.option("--on", "on", type=condition, required=True, help="When to act. | stands between alternatives.")
@click.option(
    "--do",
    "actions",
    type=click.Choice(("record", "stacks")),
    multiple=True,
    help="record: keep the five minutes before and what follows; stacks: where every Python thread stands (py-spy, "
    "stops nobody). May be given twice.",
)
@click.option("--exec", "commands", multiple=True, metavar="CMD", help="Run this in a shell at each incident.")
@click.option("--into", "folder", default=".", show_default=True, help="Folder that files go to.")
@click.option("--hold", "hold_ns", type=duration, default="1s", show_default=True, help="So long it must hold.")
@click.option("--calm", "calm_ns", type=duration, default="60s", show_default=True, help="So long it must not hold "
              "before the next incident begins.")  # fmt: skip
@click.option("--after", "after_ns", type=duration, default="30s", show_default=True, help="How long a recording goes "
              "on after its incident began.")  # fmt: skip
@click.option("--once", is_flag=True, help="End after the first incident.")
@depth_options
@interval_option
@click.pass_obj
def command(
    out: Output,
    target_name: str | None,
    on: Condition,
    actions: Sequence[str],
    commands: Sequence[str],
    folder: str,
    hold_ns: int,
    calm_ns: int,
    after_ns: int,
    once: bool,
    wanted: Wanted,
    interval_ns: int,
) -> int:
    """Watches TARGET (a PID, a URL; without it the one server that runs here) until Ctrl-C, and acts once an incident.

    Conditions: stall (how long the server has stood), oldest (the longest wait), ttft.p95, itl.p99 … (of the last ten
    seconds), kv (share of the blocks in use), waiting, running, preemptions, tokens (a second), memory (what the
    machine has left), each with < or > and a value; dead, stuck, wrong, slow (a finding at least that bad);
    finding=CAUSE.

    A command of --exec finds in its environment INFERDBG_CONDITION, INFERDBG_VERDICT, INFERDBG_PID and INFERDBG_FILES,
    and is not waited for. Exit code 1 when there was an incident.
    """
    engine = target.engine_of(target_name)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise InferdbgError(f"{folder} is no folder that can be written to", "name one: --into /var/tmp", Exit.USAGE)
    depth = target.depth_in_use(engine, wanted)
    for words in depth.words if depth is not None else ():
        out.say(words)
    ending = Ending()
    with contextlib.closing(target.engine_source(engine, wanted=wanted)) as source:
        watch = _Watch(out, source, on, _Acts(out, engine.pid, folder, actions, commands), Incidents(hold_ns, calm_ns))
        source.advance()
        looking.refuse_blindness(source.window())
        out.say(f"watching {naming.name_of(engine)}: {' | '.join(one.said for one in on.alternatives)}")
        watch.run(ending, interval_ns, after_ns, once=once)
    return Exit.FINDINGS if watch.incidents else Exit.FINE


class _Watch:
    """One look after another, and what is done about it."""

    def __init__(self, out: Output, source: "LiveSource", on: Condition, acts: "_Acts", incidents: Incidents) -> None:
        self.incidents = 0
        self._out, self._source, self._on, self._acts, self._trigger = out, source, on, acts, incidents
        self._warned: set[str] = set()

    def run(self, ending: Ending, interval_ns: int, after_ns: int, *, once: bool) -> None:
        from inferdbg.diagnosis.diagnose import diagnose

        began_ns = time.monotonic_ns()
        looks = 0
        self._acts.begin(self._source)
        until_ns: int | None = None  # when the recording of the incident is over
        while True:
            self._source.advance()
            window, now_ns = self._source.window(), time.monotonic_ns()
            findings = diagnose(window)
            looks += 1
            self._say_untold(window, findings, now_ns - began_ns)
            holding = self._on.holding(window, findings)
            if self._trigger.begins(now_ns, holds=bool(holding)):
                self.incidents += 1
                said = "; ".join(f"{one.said}: {one.now(window, findings)}" for one in holding)
                self._out.say(f"{text.clock(window.now.wall_ns)}  {said}")
                self._acts.act(said, findings[0].summary if findings else "")
                until_ns = now_ns + after_ns
            self._acts.look(self._source)
            if until_ns is not None and now_ns >= until_ns:
                self._acts.over(self._source)
                until_ns = None
                if once:
                    return
                self._acts.begin(self._source)
            if ending.wait(max(0.0, (began_ns + looks * interval_ns - time.monotonic_ns()) / 1e9)):
                (self._acts.forget if until_ns is None else self._acts.over)(self._source)
                return

    def _say_untold(self, window: "Window", findings: "Sequence[Finding]", watched_ns: int) -> None:
        if watched_ns < _PATIENCE_NS:
            return
        for one in self._on.untold(window, findings):
            if one.said not in self._warned:
                self._warned.add(one.said)
                self._out.say(f"{one.said} cannot be told of this server at this depth: it is watched for in vain")


class _Acts:
    """What is done at an incident: nothing of it is waited for, and a failure of it ends nothing."""

    def __init__(
        self, out: Output, pid: int | None, folder: str, actions: "Sequence[str]", commands: "Sequence[str]"
    ) -> None:
        self._out, self._pid, self._folder = out, pid, folder
        self._records, self._stacks, self._commands = "record" in actions, "stacks" in actions, commands
        self._recording: RecordingWriter | None = None
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def begin(self, source: "LiveSource") -> None:
        """From now on what is seen is kept, as long as it may be wanted."""
        if self._records:
            from inferdbg.record.writer import RecordingWriter

            self._recording = RecordingWriter(self._path("idbg"), keep_ns=KEPT_NS)
            source.recording = self._recording

    def act(self, said: str, verdict: str) -> None:
        files = [str(self._recording.path)] if self._recording is not None else []
        if self._stacks and self._pid is not None:
            path = self._path("stacks.json")
            asked = [sys.executable, "-m", "inferdbg", "attach", str(self._pid), "--depth", "stacks", "--json"]
            with open(path, "xb") as file:
                self._start("stacks", asked, file)
            files.append(path)
            self._out.say(f"  stacks: {shlex.quote(path)}")
        told = {
            "INFERDBG_CONDITION": said,
            "INFERDBG_VERDICT": verdict,
            "INFERDBG_PID": str(self._pid or ""),
            "INFERDBG_FILES": os.pathsep.join(files),
        }
        for command in self._commands:
            self._start(command, ["/bin/sh", "-c", command], None, told)

    def look(self, source: "LiveSource") -> None:
        """Says how what was started has ended, and why nothing is recorded any more."""
        for what, process in [pair for pair in self._running if pair[1].poll() is not None]:
            self._running.remove((what, process))
            if process.returncode not in (0, 1):  # 1: findings
                self._out.complain(f"{what}: exit code {process.returncode}")
        if self._recording is not None and source.recording is None and source.problem is not None:
            self._recording = None
            self._out.complain(source.problem.message, source.problem.hint)

    def over(self, source: "LiveSource") -> None:
        """The recording of an incident is complete."""
        recording, self._recording, source.recording = self._recording, None, None
        if recording is not None:
            recording.close()
            self._out.say(f"  recorded: inferdbg open {shlex.quote(str(recording.path))}")

    def forget(self, source: "LiveSource") -> None:
        """What was recorded is not wanted: there was no incident."""
        recording, self._recording, source.recording = self._recording, None, None
        if recording is not None:
            from inferdbg.record.reader import numbered_parts

            recording.close()
            for part in numbered_parts(recording.path):
                part.unlink(missing_ok=True)

    def _path(self, suffix: str) -> str:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        name = f"incident-{self._pid or 'remote'}-{stamp}"
        tries = (f"{name}{f'-{number}' if number else ''}.{suffix}" for number in range(1000))
        return next(path for one in tries if not os.path.lexists(path := os.path.join(self._folder, one)))

    def _start(
        self, what: str, command: "Sequence[str]", output: "BinaryIO | None", told: "Mapping[str, str] | None" = None
    ) -> None:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, env={**os.environ, **(told or {})},
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._out.complain(f"{what} cannot be started: {error.strerror}")
        else:
            self._running.append((what, process))
