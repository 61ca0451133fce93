"""Secrets do not reach a file; what is none stays readable."""

from pathlib import Path

import pytest
import zstandard
from msgspec.structs import replace

from inferdbg.facts.provenance import Origin, ProbeReport
from inferdbg.facts.sections.events import Event, Events
from inferdbg.facts.sections.server import Server
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.record.redact import redacted, redacted_text
from inferdbg.record.writer import RecordingWriter


@pytest.mark.parametrize(
    ("text", "secret", "shown"),
    [
        ("Authorization: Bearer abcDEF123456789", "abcDEF123456789", "Authorization: Bearer [redacted]"),
        ("GET https://bob:hunter22@example.org/v1", "hunter22", "https://bob:[redacted]@example.org/v1"),
        ("token hf_AbCdEfGhIjKlMnOp not valid", "hf_AbCdEfGhIjKlMnOp", "not valid"),
        ("key sk-proj-abcdef1234567890", "sk-proj-abcdef1234567890", "key [redacted]"),
        ("HF_TOKEN=abcdefgh", "abcdefgh", "HF_TOKEN=[redacted]"),
        ('{"password": "pa$$word1"}', "pa$$word1", '{"password": "[redacted]"}'),
        ("api_key='0123456789abcdef', model=x", "0123456789abcdef", "model=x"),
        ("vllm serve m --api-key s3cr3tvalue --port 8000", "s3cr3tvalue", "--port 8000"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI/K7MDENG", "AWS_SECRET_ACCESS_KEY=[redacted]"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE", "[redacted]"),
        ("ghp_0123456789abcdefghij", "ghp_0123456789abcdefghij", "[redacted]"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSM", "eyJzdWIiOiIx", "[redacted]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEpA\n-----END RSA PRIVATE KEY-----", "MIIEpA", "[redacted]"),
    ],
)
def test_secrets_are_masked(text: str, secret: str, shown: str) -> None:
    assert secret not in redacted_text(text)
    assert shown in redacted_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "request 7 needs 37 blocks, 12 free",
        "generated tokens: 512, token budget 2048",
        "http://127.0.0.1:8000/v1/completions",
        "max_tokens=16 and top_k=5",
        "task-force sk-8 tokenizer.json",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redacted_text(text) == text


def leaky() -> Snapshot:
    origin = Origin("log", 1)
    return Snapshot(
        1,
        0,
        1,
        Target("process", "pid 1"),
        server=Server(origin, "inferdbg", url="http://bob:hunter22@localhost:8000"),
        events=Events(origin, (Event(1, 1, 1, "logged", text="password=hunter22"),)),
        probes=(ProbeReport("http", "failed", message="401 for Bearer hunter22hunter22"),),
    )


def test_a_snapshot_without_secrets_is_the_same_object() -> None:
    clean = replace(leaky(), server=None, events=None, probes=())
    assert redacted(clean) is clean


def test_no_secret_reaches_the_file_unless_asked_for(tmp_path: Path) -> None:
    for redact in (True, False):
        path = tmp_path / f"{redact}.idbg"
        writer = RecordingWriter(path, redact=redact)
        writer.write(leaky())
        writer.close()
        with path.open("rb") as file:
            text = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
        assert (b"hunter22" in text) is not redact
