"""Builds the tokenizer that a GGUF file describes: tokens, merges or scores, and a name for how text is cut first."""

from __future__ import annotations

from collections.abc import Mapping

from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE

from .errors import ModelError
from .token_pieces import byte_alphabet

_CONTROL, _USER_DEFINED = 3, 4  # token types, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_GPT2_NAMES = ("default", "gpt-2", "gpt2")
_DIGIT_NAMES = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
_SPLITS = {"llama-bpe": _LLAMA3, "llama3": _LLAMA3, "llama-v3": _LLAMA3, "qwen2": _QWEN2, "deepseek-r1-qwen": _QWEN2}


def build_tokenizer(metadata: Mapping[str, object], place: str) -> tuple[Tokenizer, dict[str, str]]:
    """The tokenizer and the texts of its special tokens (bos_token, ...); raises ModelError naming ``place``."""
    kind = metadata.get("tokenizer.ggml.model")
    tokens = _strings(metadata, "tokens", place)
    if len(set(tokens)) < len(tokens):
        raise ModelError(f"{place}: the vocabulary has tokens twice", "the file is damaged")
    if kind == "gpt2":
        tokenizer = _byte_level(metadata, tokens, place)
    elif kind == "llama":
        tokenizer = _sentencepiece(metadata, tokens, place)
    else:
        raise ModelError(f"{place}: tokenizer {kind!r} is not run", "byte-level (gpt2) and SentencePiece (llama) are")
    _add_special(tokenizer, metadata, tokens)
    special: dict[str, str] = {}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        token = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(token, int) and 0 <= token < len(tokens):
            special[f"{name}_token"] = tokens[token]
    if metadata.get("tokenizer.ggml.add_bos_token", kind == "llama") and "bos_token" in special:
        bos = special["bos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos}:0 $A:0",
            pair=f"{bos}:0 $A:0 $B:1",
            special_tokens=[(bos, tokens.index(bos))],
        )
    return tokenizer, special


def _byte_level(metadata: Mapping[str, object], tokens: list[str], place: str) -> Tokenizer:
    """Byte-level BPE. How text is cut before merging goes by a name, of which llama.cpp knows the rules
    (https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp); a wrong rule gives wrong tokens silently,
    so unknown names are refused."""
    pre = metadata.get("tokenizer.ggml.pre", "default")
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    cut: pre_tokenizers.PreTokenizer
    if pre in _GPT2_NAMES:
        cut = gpt2
    elif pre in _DIGIT_NAMES:
        cut = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
    elif pre in _SPLITS:
        split = pre_tokenizers.Split(Regex(_SPLITS[str(pre)]), behavior="isolated")
        cut = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        raise ModelError(
            f"{place}: how its tokenizer {pre!r} cuts text is not known here", "give the model as a Hugging Face folder"
        )
    merges = [_pair(merge, place) for merge in _strings(metadata, "merges", place)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = _bpe(vocabulary, merges, place, ignore_merges=_SPLITS.get(str(pre)) is _LLAMA3)
    tokenizer.pre_tokenizer = cut
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(metadata: Mapping[str, object], tokens: list[str], place: str) -> Tokenizer:
    """SentencePiece BPE, whose merges follow from the scores: every way to make a token of two, best token first."""
    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise ModelError(f"{place}: the vocabulary has no scores", "the file is damaged")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    ranked: list[tuple[float, int, int, tuple[str, str]]] = []
    for token, score in zip(tokens, scores, strict=True):
        for cut in range(1, len(token)):
            left, right = vocabulary.get(token[:cut]), vocabulary.get(token[cut:])
            if left is not None and right is not None:
                ranked.append((-score, left, right, (token[:cut], token[cut:])))
    merges = [merge for *_, merge in sorted(ranked)]
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    unknown_text = tokens[unknown] if isinstance(unknown, int) and 0 <= unknown < len(tokens) else None
    tokenizer = _bpe(vocabulary, merges, place, unk_token=unknown_text, fuse_unk=True, byte_fallback=True)
    prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement="▁", prepend_scheme="first" if prefix else "never", split=False
    )
    parts: list[decoders.Decoder] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*parts, *([decoders.Strip(" ", 1, 0)] if prefix else [])])
    return tokenizer


def _bpe(
    vocabulary: dict[str, int], merges: list[tuple[str, str]], place: str, **options: str | bool | None
) -> Tokenizer:
    try:
        return Tokenizer(BPE(vocab=vocabulary, merges=merges, **options))
    except Exception as error:  # the library raises no narrower type
        raise ModelError(f"{place}: the merges do not fit the vocabulary: {error}", "the file is damaged") from error


def _add_special(tokenizer: Tokenizer, metadata: Mapping[str, object], tokens: list[str]) -> None:
    """Control tokens are special; user-defined ones are only kept whole. In a byte-level vocabulary a control token
    with characters outside its alphabet is a slip of the converter, and is left out, as transformers does."""
    types = metadata.get("tokenizer.ggml.token_type")
    if not isinstance(types, list):
        return
    alphabet = set(byte_alphabet()) if metadata.get("tokenizer.ggml.model") == "gpt2" else None
    control = [
        token
        for token, kind in zip(tokens, types, strict=False)
        if kind == _CONTROL and (alphabet is None or alphabet.issuperset(token))
    ]
    own = [token for token, kind in zip(tokens, types, strict=False) if kind == _USER_DEFINED]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in own])


def _strings(metadata: Mapping[str, object], name: str, place: str) -> list[str]:
    values = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ModelError(f"{place} has no tokenizer.ggml.{name}", "the file is damaged, or holds no language model")
    return values


def _pair(merge: str, place: str) -> tuple[str, str]:
    left, space, right = merge.partition(" ")
    if not (left and space and right):
        raise ModelError(f"{place}: {merge!r} is no merge of two tokens", "the file is damaged")
    return left, right
