"""Tokens become text without broken characters, and stop strings never slip out."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferdbg.engine.chat_template import ChatTemplate
from inferdbg.engine.detokenizer import IncrementalDetokenizer
from inferdbg.engine.errors import BadRequest, ModelError
from inferdbg.engine.stop_strings import StopStrings
from inferdbg.engine.tiny_model import SPECIAL, tiny_tokenizer
from inferdbg.engine.token_pieces import byte_alphabet, byte_level_piece, piece_function, sentencepiece_piece

TOKENIZER = tiny_tokenizer()


def streamed(tokens: list[int]) -> list[str]:
    detokenizer = TOKENIZER.detokenizer()
    return [*(detokenizer.push(token) for token in tokens), detokenizer.finish()]


@given(st.text())
def test_text_survives_tokens_and_back(text: str) -> None:
    tokens = TOKENIZER.encode(text)
    assert "".join(streamed(tokens)) == TOKENIZER.decode(tokens)
    if not any(special in text for special in SPECIAL):
        assert TOKENIZER.decode(tokens) == text


@given(st.lists(st.integers(0, TOKENIZER.vocabulary - 1)))
def test_streamed_text_is_that_of_the_whole_sequence_even_for_broken_bytes(tokens: list[int]) -> None:
    assert "".join(streamed(tokens)) == TOKENIZER.decode(tokens)


def test_a_character_comes_with_the_token_that_completes_it() -> None:
    assert streamed(TOKENIZER.encode("aé🎉")) == ["a", "", "é", "", "", "", "🎉", ""]
    assert streamed(TOKENIZER.encode("🎉")[:2]) == ["", "", "�"]


def test_special_tokens_add_no_text_but_have_bytes() -> None:
    token = TOKENIZER.encode("<|im_end|>")
    assert token == [2]
    assert streamed(token) == ["", ""]
    assert TOKENIZER.token_bytes(2) == b"<|im_end|>"
    assert TOKENIZER.token_bytes(10**6) == b""


@given(st.lists(st.text("ab", max_size=3), max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_output_ends_before_the_first_stop_string_however_it_is_cut(parts: list[str], stops: list[str]) -> None:
    matcher = StopStrings(stops)
    told = ""
    whole = ""
    for part in parts:
        told += matcher.push(part)
        whole += part
        if matcher.hit:
            break
    places = [whole.find(stop) for stop in stops if stop in whole]
    assert matcher.hit == bool(places)
    assert told + matcher.finish() == (whole[: min(places)] if places else whole)


def test_what_may_begin_a_stop_string_is_held_back_and_no_more() -> None:
    matcher = StopStrings(("END", "\n\n"))
    assert [matcher.push(text) for text in ("one E", "N", "E", "ND more")] == ["one ", "", "EN", ""]
    assert matcher.found == "END"
    assert matcher.push("after") == ""
    assert matcher.finish() == ""


def test_pieces_of_both_kinds_of_vocabulary() -> None:
    assert len(set(byte_alphabet().values())) == 256
    assert byte_level_piece("Ġhé") == b" h\xe9"
    assert byte_level_piece("<|x y|>") == b"<|x y|>"
    assert sentencepiece_piece("▁hi") == b" hi"
    assert sentencepiece_piece("<0x0A>") == b"\n"
    assert piece_function({"type": "ByteLevel"}) is byte_level_piece
    metaspace = {"type": "Sequence", "decoders": [{"type": "Replace"}, {"type": "ByteFallback"}, {"type": "Fuse"}]}
    assert piece_function(metaspace) is sentencepiece_piece
    assert piece_function({"type": "WordPiece"}) is None


def test_bytes_that_come_in_pieces_of_any_size_give_the_same_text() -> None:
    text = "déjà 東京 🎉 " * 20
    raw = text.encode()
    rng = random.Random(1)
    pieces: list[bytes] = []
    while raw:
        size = rng.randrange(1, 6)
        pieces.append(raw[:size])
        raw = raw[size:]
    detokenizer = IncrementalDetokenizer(pieces.__getitem__)
    assert "".join(map(detokenizer.push, range(len(pieces)))) + detokenizer.finish() == text


def test_a_conversation_becomes_the_text_of_the_template() -> None:
    tokens = TOKENIZER.apply_chat_template([{"role": "user", "content": "hi"}])
    assert (
        TOKENIZER.decode(tokens, skip_special_tokens=False) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    "source, message",
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content.upper() + 3 }}", "refuses"),
        ("{{ messages.__class__.__mro__[1].__subclasses__() }}", "unsafe|undefined"),
        ("{{ messages.append(1) }}", "unsafe|not callable"),
    ],
)
def test_a_template_that_refuses_or_reaches_out_is_the_requests_error(source: str, message: str) -> None:
    template = ChatTemplate(source, {})
    with pytest.raises(BadRequest, match=message):
        template.render([{"role": "user", "content": "x"}])


def test_a_template_that_cannot_be_parsed_is_the_models_error() -> None:
    with pytest.raises(ModelError, match="cannot be parsed"):
        ChatTemplate("{% for %}", {})


def test_templates_have_the_helpers_of_transformers() -> None:
    source = (
        "{% for message in messages %}{% if loop.index > 1 %}{% break %}{% endif %}\n"
        "{{ message | tojson }}{{ bos_token }}\n"
        "{% endfor %}"
    )
    template = ChatTemplate(source, {"bos_token": "<s>"})
    assert template.render([{"role": "é"}, {"role": "b"}]) == '{"role": "é"}<s>\n'
