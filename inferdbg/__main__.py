"""The command: ``inferdbg``, or ``python -m inferdbg`` where its script is not on the PATH."""

import sys


def main() -> int:
    """Runs the process's own arguments and returns the exit code. An interrupt that comes while modules are still being
    imported ends as one that comes later."""
    try:
        from inferdbg.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130  # Exit.INTERRUPTED, which may not have been imported yet


if __name__ == "__main__":
    sys.exit(main())
