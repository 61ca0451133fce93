"""Writes fixtures/recordings/vN.idbg of the present version: python -m tests.record.make_fixture. Once a version."""

from pathlib import Path

from inferdbg.record.header import VERSION
from inferdbg.record.writer import RecordingWriter
from tests.support.snapshots import busy

PATH = Path(__file__).resolve().parents[2] / "fixtures" / "recordings" / f"v{VERSION}.idbg"


def main() -> None:
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.unlink(missing_ok=True)
    writer = RecordingWriter(PATH)
    for snapshot in busy(blocks=256, requests=8, snapshots=40, warm_steps=100, seed=1):
        writer.write(snapshot)
    writer.close()
    PATH.chmod(0o644)


if __name__ == "__main__":
    main()
