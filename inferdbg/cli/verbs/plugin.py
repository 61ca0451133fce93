"""`inferdbg plugin`: writes the plug-in that keeps a black box inside somebody else's server."""

import os
import shutil

import click

from inferdbg import text
from inferdbg.cli.options import example, json_option
from inferdbg.cli.output import Output
from inferdbg.errors import Exit, InferdbgError


@click.command(
    short_help="Let vLLM keep a black box:  inferdbg plugin vllm ./watch",
    epilog=example("inferdbg plugin vllm ./watch", "inferdbg plugin vllm ./watch --remove"),
)
@click.argument("server", type=click.Choice(["vllm"]))
@click.argument("folder", metavar="DIR")
@click.option("--remove", is_flag=True, help="Take away again what was written there.")
@json_option
@click.pass_obj
def command(out: Output, server: str, folder: str, remove: bool, as_json: bool) -> int:
    """Writes into DIR a plug-in for vLLM's entry point vllm.general_plugins, and prints how to start vLLM with it. It
    goes on PYTHONPATH, so that nothing is installed into vLLM's own environment, and is off unless INFERDBG=1.

    Then the engine core keeps a black box, step by step: requests, blocks and their owners, preemptions as they
    happen. `inferdbg top` finds it, `inferdbg attach` reads it, alive, hung or dead.

    \b
    INFERDBG_BLACKBOX_DIR=DIR   where the box goes          [default: a folder in memory]
    INFERDBG_TRUTH=FILE         a line a step of what the scheduler really holds, to check readers with; costly
    """
    folder = os.path.abspath(folder)
    if remove:
        removed = _remove(folder)
        if as_json:
            out.show_json({"schema": "inferdbg.plugin.v1", "folder": folder, "removed": removed})
        else:
            out.say(f"removed {text.counted(len(removed), 'file')} from {folder}")
        return Exit.FINE
    written = _write(folder)
    start = f"INFERDBG=1 PYTHONPATH={_quoted(folder)}${{PYTHONPATH:+:$PYTHONPATH}} vllm serve MODEL"
    if as_json:
        out.show_json({"schema": "inferdbg.plugin.v1", "folder": folder, "written": written, "start": start})
        return Exit.FINE
    out.say(f"wrote {text.counted(len(written), 'file')} into {folder}; start vLLM like this, and then: inferdbg top")
    out.show(start)
    if os.environ.get("VLLM_PLUGINS"):
        out.say("VLLM_PLUGINS is set here and names all plug-ins that vLLM loads: add inferdbg to it")
    return Exit.FINE


def _write(folder: str) -> list[str]:
    """Replaces what an earlier version wrote. Raises InferdbgError, before anything is changed, where other people's
    files are in the way."""
    from inferdbg.probes.vllm_plugin.carry import package_files

    files = package_files()
    ours = _recorded(folder)
    for path in files:
        if os.path.lexists(os.path.join(folder, path)) and path not in ours:
            raise InferdbgError(f"{os.path.join(folder, path)} is not ours", "name another folder", Exit.USAGE)
    for path in ours - files.keys():
        _unlink(folder, path)
    for path, content in files.items():
        target = os.path.join(folder, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        beside = f"{target}.new"
        with open(beside, "wb") as file:
            file.write(content)
        os.replace(beside, target)  # a vLLM that starts just now reads the old or the new one
    return sorted(files)


def _remove(folder: str) -> list[str]:
    from inferdbg.probes.vllm_plugin.carry import PACKAGE

    ours = _recorded(folder)
    if not ours:
        raise InferdbgError(f"there is no plug-in of ours in {folder}", "name the folder that it was written to")
    shutil.rmtree(os.path.join(folder, PACKAGE, "__pycache__"), ignore_errors=True)
    return sorted(path for path in ours if _unlink(folder, path))


def _recorded(folder: str) -> set[str]:
    """What RECORD files of ours say was written: no path that leads elsewhere, and no file that was changed since."""
    from inferdbg.probes.vllm_plugin.carry import PACKAGE, digest

    found: set[str] = set()
    try:
        infos = [name for name in os.listdir(folder) if name.startswith(f"{PACKAGE}-") and name.endswith(".dist-info")]
    except FileNotFoundError:
        return found
    for info in infos:
        record = f"{info}/RECORD"
        try:
            with open(os.path.join(folder, record), encoding="utf-8") as file:
                lines = file.read().splitlines()
        except OSError:
            continue
        found.add(record)
        for path, _, rest in (line.partition(",") for line in lines):
            if path.split("/")[0] not in (PACKAGE, info) or path.count("/") != 1 or ".." in path:
                continue
            try:
                with open(os.path.join(folder, path), "rb") as file:
                    if digest(file.read()) == rest.partition(",")[0]:
                        found.add(path)
            except OSError:
                continue
    return found


def _unlink(folder: str, path: str) -> bool:
    """And its folder, when it is empty then."""
    target = os.path.join(folder, path)
    try:
        os.unlink(target)
        os.rmdir(os.path.dirname(target))
    except FileNotFoundError:
        return False
    except OSError:
        pass  # the folder has something else in it
    return True


def _quoted(path: str) -> str:
    import shlex

    return shlex.quote(path)
