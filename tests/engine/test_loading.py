"""Models load from folders and GGUF files alike, and what cannot be loaded says why."""

import contextlib
import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file

from inferdbg.engine.errors import ModelError
from inferdbg.engine.loading import LoadedModel, find_default_model, load
from inferdbg.engine.memory import available_memory
from inferdbg.engine.model_config import ModelConfig, RopeScaling, config_from_folder
from inferdbg.engine.tiny_model import tiny_config, tiny_tokenizer, tiny_weights, write_folder
from tests.support import peers
from tests.support.ggufs import write_gguf
from tests.support.paged import Paged

CONFIG = tiny_config(
    vocabulary=260, layers=2, hidden_size=64, heads=4, head_size=16, intermediate_size=128, eos_ids=(0,)
)
WEIGHTS = tiny_weights(CONFIG)
TOKENS = [5, 77, 200, 31, 9, 140]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("folder") / "made"
    write_folder(path, CONFIG, WEIGHTS)
    return path


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "made.gguf"
    write_gguf(path, CONFIG, WEIGHTS)
    return path


def logits(model: LoadedModel) -> torch.Tensor:
    return Paged(model).forward([(0, TOKENS, 0)])


def test_a_gguf_file_holds_the_same_model_as_its_folder(folder: Path, gguf_file: Path) -> None:
    from_folder, from_gguf = load(folder, "fp32"), load(gguf_file, "fp32")
    assert replace(from_gguf.config, rms_eps=CONFIG.rms_eps) == from_folder.config == CONFIG
    for name, tensor in from_folder.weights.tensors.items():
        assert torch.equal(from_gguf.weights.tensors[name], tensor), name
    assert (from_folder.name, from_gguf.name) == ("made", "made")


@pytest.mark.parametrize(
    "changes",
    [{"tied": False}, {"attention_bias": True, "mlp_bias": True}, {"head_size": 24}, {"kv_heads": 4}],
    ids=str,
)
def test_gguf_files_of_many_shapes_hold_what_was_written(changes: dict[str, int], tmp_path: Path) -> None:
    config = replace(CONFIG, **changes)  # type: ignore[arg-type]
    weights = tiny_weights(config)
    write_gguf(tmp_path / "made.gguf", config, weights)
    read = load(tmp_path / "made.gguf", "fp32")
    assert replace(read.config, rms_eps=config.rms_eps) == config
    assert all(torch.equal(read.weights.tensors[name], tensor) for name, tensor in weights.tensors.items())


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_quantised_weights_come_near_the_written_ones(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "made.gguf"
    write_gguf(path, CONFIG, WEIGHTS, kind=gguf.GGMLQuantizationType[kind])
    for name, tensor in load(path, "fp32").weights.tensors.items():
        error = (tensor - WEIGHTS.tensors[name]).abs().max()
        assert error <= (0.12 if "4_" in kind else 0.07) * WEIGHTS.tensors[name].abs().max(), name


@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_1"])
def test_transformers_reads_the_same_from_a_gguf_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "made.gguf"
    write_gguf(path, CONFIG, WEIGHTS, kind=gguf.GGMLQuantizationType[kind])
    wanted = peers.all_logits(peers.model_from_gguf(path), TOKENS)
    torch.testing.assert_close(logits(load(path, "fp32")), wanted[-1:], rtol=1e-3, atol=1e-3)


def test_rope_divisors_of_a_file_do_what_llama3_scaling_does(tmp_path: Path) -> None:
    scaled = replace(CONFIG, rope_scaling=RopeScaling("llama3", 8.0, 1.0, 4.0, original_max_positions=64))
    plain = 1.0 / (CONFIG.rope_theta ** (torch.arange(0, 16, 2) / 16))
    waves = 64 * plain / (2 * torch.pi)
    ramp = ((waves - 1) / 3).clamp(0, 1)
    write_gguf(tmp_path / "a.gguf", CONFIG, WEIGHTS, rope_divisors=(1 / ((1 - ramp) / 8 + ramp)).tolist())
    write_folder(tmp_path / "b", scaled, WEIGHTS)
    torch.testing.assert_close(logits(load(tmp_path / "a.gguf", "fp32")), logits(load(tmp_path / "b", "fp32")))


def test_linear_scaling_is_read_from_metadata(tmp_path: Path) -> None:
    keys = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    write_gguf(tmp_path / "made.gguf", CONFIG, WEIGHTS, metadata=keys)
    assert load(tmp_path / "made.gguf", "fp32").config.rope_scaling == RopeScaling("linear", 4.0)


def test_shards_are_joined(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "sharded")
    tensors = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {name: f"model-{place % 2}.safetensors" for place, name in enumerate(names)}
    for shard in sorted(set(shards.values())):
        save_file({name: tensors[name] for name in names if shards[name] == shard}, copy / shard)
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    read = load(copy, "fp32")
    assert all(torch.equal(read.weights.tensors[name], tensor) for name, tensor in WEIGHTS.tensors.items())
    (copy / "model-1.safetensors").unlink()
    with pytest.raises(ModelError, match=r"lacks 1 of 2 files of weights, model-1\.safetensors"):
        load(copy)


def test_weights_are_cast_to_what_is_asked_for(folder: Path) -> None:
    read = load(folder, "bf16")
    assert (read.weights.dtype_name, read.weights.item_size) == ("bf16", 2)
    assert read.weights.size_bytes == 2 * read.weights.parameters == 2 * WEIGHTS.parameters
    assert torch.equal(read.weights.tensors["norm"], WEIGHTS.tensors["norm"].bfloat16())
    with pytest.raises(ModelError, match="fp32 or bf16, not 'int3'"):
        load(folder, "int3")


def test_without_a_default_model_a_tiny_one_takes_its_place_and_says_so() -> None:
    made = load(None, "fp32", default=lambda: None)
    assert made.note is not None
    assert "tiny random model" in made.note
    assert load("tiny", "fp32").note is None
    assert made.config.vocabulary == made.tokenizer.vocabulary
    assert Paged(made).generate([made.tokenizer.encode("hello")], 5)[0]


def test_the_default_model_is_looked_for_without_importing_it() -> None:
    path = find_default_model()
    assert path is None or path.suffix == ".gguf"


def test_a_model_larger_than_memory_is_refused_before_loading(folder: Path, gguf_file: Path) -> None:
    for path in (folder, gguf_file):
        with pytest.raises(ModelError, match=r"needs 0\.13 GiB of memory, 0\.05 GiB are available") as caught:
            load(path, "fp32", available=lambda: 50 * 2**20)
        assert "bf16" in caught.value.hint


def test_the_memory_that_is_left_is_read_from_the_kernel(tmp_path: Path) -> None:
    told = tmp_path / "meminfo"
    told.write_text("MemTotal:  100 kB\nMemAvailable:    7 kB\n")
    assert available_memory(told) == 7 * 1024
    assert available_memory(tmp_path / "none") is None
    told.write_text("MemTotal:  100 kB\nMemAvailable:\n")
    assert available_memory(told) is None


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """Opening a FIFO waits for its writer."""
    os.mkfifo(tmp_path / "model.gguf")
    with pytest.raises(ModelError, match="neither a folder nor a file"):
        load(tmp_path / "model.gguf")


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.01, 0.3, 0.9, 0.9999])
def test_a_truncated_file_says_so(folder: Path, gguf_file: Path, tmp_path: Path, share: float) -> None:
    whole = gguf_file.read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(ModelError, match=r"truncated|damaged|empty|no GGUF"):
        load(cut)
    copy = shutil.copytree(folder, tmp_path / "cut")
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: int(weights.stat().st_size * share)])
    with pytest.raises(ModelError, match="damaged or truncated"):
        load(copy)


def test_no_flipped_byte_of_a_header_gets_further_than_a_model_error(gguf_file: Path, tmp_path: Path) -> None:
    whole = bytearray(gguf_file.read_bytes())
    broken = tmp_path / "broken.gguf"
    for place in random.Random(0).sample(range(9000), 300):
        for value in (0xFF, whole[place] ^ 1):
            kept, whole[place] = whole[place], value
            broken.write_bytes(whole)
            whole[place] = kept
            with contextlib.suppress(ModelError):  # some flips do no harm
                load(broken)


def _edit(key: str, value: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))

    return edit


def _write(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def _drop(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _without_norm(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, folder / "model.safetensors")


def _extra(folder: Path) -> None:
    save_file(load_file(folder / "model.safetensors") | {"x.qweight": torch.zeros(1)}, folder / "model.safetensors")


def _integers(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor.to(torch.int8) for name, tensor in tensors.items()}, folder / "model.safetensors")


@pytest.mark.parametrize(
    "harm, message",
    [
        (_drop("config.json"), "has no config.json"),
        (_write("config.json", b"{"), "is no JSON"),
        (_write("config.json", b"[]"), "holds no object"),
        (_edit("model_type", "qwen2"), "type 'qwen2'"),
        (_edit("hidden_act", "gelu"), "activation 'gelu'"),
        (_edit("quantization_config", {"quant_method": "awq"}), "quantised weights"),
        (_edit("head_dim", 15), "head size 15 is odd"),
        (_edit("num_key_value_heads", 3), "cannot share 3"),
        (_edit("num_hidden_layers", "two"), "num_hidden_layers must be a whole number, not 'two'"),
        (_edit("num_hidden_layers", 0), "layers = 0"),
        (_edit("num_hidden_layers", 2**60), "layers = 1,152"),
        (_edit("num_hidden_layers", 3), "tensors are missing"),
        (_edit("num_hidden_layers", 1), "no such Llama has"),
        (_edit("intermediate_size", 100), "shape"),
        (_edit("eos_token_id", 9999), "outside the vocabulary"),
        (_edit("eos_token_id", "x"), "a token or a list"),
        (_edit("rope_parameters", {"rope_type": "yarn", "factor": 2.0}), "'yarn' is not run"),
        (
            _edit("rope_parameters", {"rope_type": "llama3", "factor": 8.0}),
            "low_freq_factor must be a number, not None",
        ),
        (
            _edit("rope_parameters", {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
            "factor must be a number, not None",
        ),
        (
            _edit("rope_parameters", {"rope_type": "llama3", "low_freq_factor": 4, "high_freq_factor": 4}),
            "below high_freq_factor",
        ),
        (_edit("rope_parameters", {"rope_type": "linear"}), "factor must be a number, not None"),
        (_edit("eos_token_id", [1, 2.5]), "a token or a list"),
        (_drop("model.safetensors"), "has no model.safetensors"),
        (_write("model.safetensors.index.json", b"{}"), None),
        (_without_norm, "1 tensors are missing, model.norm.weight"),
        (_extra, "x.qweight, which no such Llama has"),
        (_integers, "type I8"),
        (_drop("tokenizer.json"), "has no tokenizer.json"),
        (_write("tokenizer.json", b"{}"), "tokenizer.json is damaged"),
        (_write("tokenizer_config.json", b"{"), "is no JSON"),
        (_write("chat_template.jinja", b"{% for %}"), "chat template"),
    ],
)
def test_a_harmed_folder_says_what_is_wrong(
    folder: Path, tmp_path: Path, harm: Callable[[Path], None], message: str | None
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    harm(copy)
    if message is None:
        load(copy)
        return
    with pytest.raises(ModelError, match=message):
        load(copy)


@pytest.mark.parametrize(
    "metadata, message",
    [
        ({"expert_count": 8}, "mixture of experts"),
        ({"rope.scaling.type": "yarn"}, "'yarn' is not run"),
    ],
)
def test_a_gguf_file_that_is_no_plain_llama_says_why(
    metadata: dict[str, int | str], message: str, tmp_path: Path
) -> None:
    write_gguf(tmp_path / "made.gguf", CONFIG, WEIGHTS, metadata=metadata)
    with pytest.raises(ModelError, match=message):
        load(tmp_path / "made.gguf")


def test_what_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        load(tmp_path / "nowhere.gguf")
    with pytest.raises(ModelError, match=r"has no config\.json"):
        load(tmp_path)


def test_older_folders_are_read_too(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "old")
    raw = json.loads((copy / "config.json").read_text())
    del raw["rope_parameters"], raw["head_dim"]
    raw |= {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}, "eos_token_id": 7}
    (copy / "config.json").write_text(json.dumps(raw))
    (copy / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 2]}))
    read = config_from_folder(copy)
    assert (read.rope_theta, read.rope_scaling) == (500.0, RopeScaling("linear", 2.0))
    assert (read.head_size, read.eos_ids) == (16, (0, 2))


def test_a_config_counts_its_cache() -> None:
    config: ModelConfig = tiny_config(layers=3, kv_heads=2, head_size=10)
    assert config.kv_bytes_per_token(2) == 2 * 3 * 2 * 10 * 2
    assert config.group_size == 3
    assert tiny_tokenizer().vocabulary == config.vocabulary
