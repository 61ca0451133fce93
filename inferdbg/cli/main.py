"""The entry point: finds the verb, runs it, and turns every error into one line, a hint and an exit code."""

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence

import click

from inferdbg.cli import verbs
from inferdbg.cli.output import Output, reader_gone, standard
from inferdbg.config import Environment
from inferdbg.errors import Exit, InferdbgError

_HELP = """Shows what an LLM inference server is doing, why it is slow, stuck or wrong, and why it died.

\b
  inferdbg top --demo       look at a small engine under traffic
  inferdbg top              look at what runs here
  inferdbg attach 58        look at one server, by PID, URL, black box or recording

Exit codes: 0 fine, 1 findings, 2 usage, 3 target unreachable or denied, 4 nothing was checked, 70 a bug of ours,
130 interrupted. Shell completion: eval "$(_INFERDBG_COMPLETE=bash_source inferdbg)" (or zsh_source, fish_source).
"""


class Verbs(click.Group):
    """Every file in ``verbs/`` is a verb, imported when asked for; its own imports are done when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        files = os.listdir(os.path.dirname(verbs.__file__))
        return sorted(name.removesuffix(".py") for name in files if name.endswith(".py") and name != "__init__.py")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return super().get_command(ctx, cmd_name)
        command: click.Command = importlib.import_module(f"{verbs.__name__}.{cmd_name}").command
        return command

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: object
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except BrokenPipeError:  # of --help
            reader_gone()
            raise click.exceptions.Exit(Exit.BROKEN_PIPE) from None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # before click's own answer to it, which is code 1: findings
            reader_gone()
            return Exit.BROKEN_PIPE


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("inferdbg")
        except PackageNotFoundError:
            number = "(not installed)"
        context.obj.show(f"inferdbg {number}")
        context.exit()


cli = Verbs(
    name="inferdbg",
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    params=[
        click.Option(
            ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Say which it is."
        )
    ],
)


def main(argv: Sequence[str] | None = None, command: click.Command = cli) -> int:
    """Runs ``argv`` (default: the process's own) and returns the exit code."""
    try:
        environment = Environment.of(os.environ)
    except ValueError as error:
        standard(colour=False).complain(str(error))
        return Exit.USAGE
    out = standard(colour=environment.colour)
    try:
        args = list(sys.argv[1:] if argv is None else argv) or ["--help"]
        return int(command.main(args, prog_name="inferdbg", standalone_mode=False, obj=out) or Exit.FINE)
    except (KeyboardInterrupt, click.Abort):
        return Exit.INTERRUPTED
    except Exception as error:  # noqa: BLE001  the boundary: everything becomes a line, a hint and a code
        return _report(error, out, debug=environment.debug)


def _report(error: Exception, out: Output, *, debug: bool) -> int:
    from inferdbg.engine.errors import BadRequest, ConfigError, EngineError

    if debug:
        import traceback

        with contextlib.suppress(OSError):
            out.say("".join(traceback.format_exception(error)).rstrip())
    if isinstance(error, click.UsageError):
        asked = error.ctx.command_path if error.ctx is not None else "inferdbg"
        out.complain(error.format_message(), f"see: {asked} --help")
        return Exit.USAGE
    if isinstance(error, click.ClickException):
        out.complain(error.format_message())
        return Exit.USAGE
    if isinstance(error, InferdbgError):
        out.complain(error.message, error.hint)
        return error.code
    if isinstance(error, EngineError):
        out.complain(error.message, error.hint)
        return Exit.USAGE if isinstance(error, BadRequest | ConfigError) else Exit.UNREACHABLE
    if isinstance(error, OSError) and error.strerror:
        out.complain(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
        return Exit.UNREACHABLE
    out.complain(
        f"{type(error).__name__}: {error} (this is a bug in inferdbg)", "to see where: INFERDBG_DEBUG=1 and again"
    )
    return Exit.BUG
