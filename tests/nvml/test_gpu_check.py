"""`make gpu-check` where there is no GPU, and where there is one without a torch that can use it."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from inferdbg.probes.nvml import LIBRARY
from tests.nvml.recorded import built, fixture, written

pytestmark = pytest.mark.live


def checked(**environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benchmarks.gpu_check"]
    everything = {**os.environ, **environment}
    return subprocess.run(command, env=everything, capture_output=True, text=True, check=False, timeout=120)


def test_without_a_gpu_nothing_is_checked() -> None:
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        done = checked()
        assert (done.returncode, done.stdout) == (4, "")
        assert done.stderr.startswith(f"nothing checked: no NVML: there is no {LIBRARY}")
        return
    pytest.skip("a driver is installed here")


def test_what_nvml_says_is_shown_before_anything_is_compared(tmp_path: Path) -> None:
    library = built(tmp_path)
    values = tmp_path / "values"
    values.write_text(written(fixture("h100")), encoding="utf-8")
    done = checked(LD_LIBRARY_PATH=str(library), NVML_RECORDED=str(values), CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    assert "2.4 TB/s of 3.4 TB/s, measured" in done.stdout
    assert "not compared" in done.stdout
