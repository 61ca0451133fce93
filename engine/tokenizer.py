"""Text to tokens and back, with the chat template: one class, whether it came from a folder or from a GGUF file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tokenizers

from .chat_template import ChatTemplate
from .detokenizer import IncrementalDetokenizer
from .errors import BadRequest, ModelError
from .gguf_tokenizer import build_tokenizer
from .token_pieces import piece_function

if TYPE_CHECKING:
    from .weights.gguf_file import GgufFile


class Tokenizer:
    """``backend``: the tokenizer proper, with special tokens and post-processing. ``chat_template``: None when the
    model has none. Safe to use from several threads."""

    def __init__(self, backend: tokenizers.Tokenizer, chat_template: ChatTemplate | None) -> None:
        """Raises ModelError when tokens have no fixed bytes, as with WordPiece."""
        backend.no_padding()
        backend.no_truncation()
        self.backend = backend
        self.chat_template = chat_template
        piece = piece_function(json.loads(backend.to_str())["decoder"]) if backend.decoder is not None else None
        if piece is None:
            raise ModelError("the tokenizer is neither byte-level nor SentencePiece", "only the Llama family is run")
        self.vocabulary = backend.get_vocab_size(with_added_tokens=True)
        self._pieces: list[bytes] = [b""] * (max(backend.get_vocab().values(), default=-1) + 1)
        for text, token in backend.get_vocab().items():
            self._pieces[token] = piece(text)
        self.longest_piece = max(map(len, self._pieces), default=1)
        self._special = {token for token, added in backend.get_added_tokens_decoder().items() if added.special}

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Special tokens that are spelled out in ``text`` become tokens. ``add_special_tokens``: with whatever this
        model puts around every text, such as a begin token. Other threads run meanwhile: encode_batch_fast gives up the
        GIL, encode does not."""
        (encoded,) = self.backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoded.ids
        return ids

    def least_tokens(self, text: str) -> int:
        """At least so many tokens ``text`` has, known without tokenizing it: no token stands for more bytes than
        ``longest_piece``."""
        return -(-len(text.encode("utf-8", "surrogatepass")) // self.longest_piece)

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of a whole sequence."""
        text: str = self.backend.decode(list(tokens), skip_special_tokens=skip_special_tokens)
        return text

    def render_chat(self, messages: Sequence[Mapping[str, object]], *, add_generation_prompt: bool = True) -> str:
        """The text of a conversation; raises BadRequest when there is no template, or it refuses the messages."""
        if self.chat_template is None:
            raise BadRequest("this model has no chat template: send a prompt to /v1/completions")
        return self.chat_template.render(messages, add_generation_prompt=add_generation_prompt)

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, object]], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """The tokens of a conversation; raises BadRequest as ``render_chat``."""
        text = self.render_chat(messages, add_generation_prompt=add_generation_prompt)
        return self.encode(text, add_special_tokens=False)

    def token_bytes(self, token: int) -> bytes:
        """What a token stands for, special ones by their names; nothing for a number that no token has."""
        return self._pieces[token] if 0 <= token < len(self._pieces) else b""

    def piece(self, token: int) -> bytes:
        """What a token adds to the output: special ones add nothing."""
        return b"" if token in self._special else self.token_bytes(token)

    def detokenizer(self) -> IncrementalDetokenizer:
        """For the tokens of one answer."""
        return IncrementalDetokenizer(self.piece)


def tokenizer_from_folder(folder: Path) -> Tokenizer:
    """From tokenizer.json, tokenizer_config.json and chat_template.jinja; raises ModelError."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        old = (folder / "tokenizer.model").is_file()
        raise ModelError(
            f"{folder} has no tokenizer.json",
            "convert its tokenizer.model with transformers (save_pretrained)" if old else "fetch the model again",
        )
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower type
        raise ModelError(f"{path} is damaged: {error}", "fetch the model again") from error
    settings = _settings(folder / "tokenizer_config.json")
    template = folder / "chat_template.jinja"
    source = template.read_text("utf-8") if template.is_file() else _default_template(settings.get("chat_template"))
    return Tokenizer(backend, None if source is None else ChatTemplate(source, _special_texts(settings)))


def tokenizer_from_gguf(file: GgufFile) -> Tokenizer:
    """From the vocabulary and the template in the metadata; raises ModelError."""
    backend, special = build_tokenizer(file.metadata, str(file.path))
    source = file.metadata.get("tokenizer.chat_template")
    return Tokenizer(backend, ChatTemplate(source, special) if isinstance(source, str) else None)


def _settings(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        settings = json.loads(path.read_bytes())
    except ValueError as error:
        raise ModelError(f"{path} is no JSON", "the file is damaged: fetch the model again") from error
    return settings if isinstance(settings, dict) else {}


def _default_template(value: object) -> str | None:
    """A model may have one template, or a list of named ones."""
    if isinstance(value, list):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None


def _special_texts(settings: Mapping[str, object]) -> dict[str, str]:
    """bos_token and its like, written as text or as an object with its content."""
    texts: dict[str, str] = {}
    for name, value in settings.items():
        content = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(content, str):
            texts[name] = content
    return texts
