"""Bad input is refused with the guilty field; what is unknown is ignored; what cannot be honoured is never ignored."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferdbg.engine.server.bodies import (
    MAX_STOPS,
    NEUTRAL,
    ChatBody,
    CompletionBody,
    parse,
    prompts_of,
    sampling_params,
    texts_of,
)
from inferdbg.engine.server.refusal import Refusal


def completion(**fields: object) -> CompletionBody:
    return parse(json.dumps({"prompt": "hello", **fields}).encode(), CompletionBody)


def chat(**fields: object) -> ChatBody:
    return parse(json.dumps({"messages": [{"role": "user", "content": "hi"}], **fields}).encode(), ChatBody)


def refusal(raw: bytes, shape: type[CompletionBody] | type[ChatBody] = CompletionBody) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse(raw, shape)
    return caught.value


def test_unknown_fields_and_nulls_change_nothing() -> None:
    body = completion(user="somebody", store=True, metadata={"a": 1}, temperature=None, stop=None, tools=None)
    assert sampling_params(body, room=100, default_max_tokens=16) == sampling_params(
        completion(), room=100, default_max_tokens=16
    )


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": "16"}, "max_tokens"),
        ({"stream": 1}, "stream"),
        ({"stop": [1]}, "stop"),
        ({"stop": {"a": 1}}, "stop"),
        ({"prompt": {"text": "x"}}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"n": True}, "n"),
        ({"model": 3}, "model"),
        ({"seed": 1e30}, "seed"),
        ({"stream_options": []}, "stream_options"),
    ],
)
def test_a_wrong_type_names_its_field(fields: dict[str, object], param: str) -> None:
    found = refusal(json.dumps({"prompt": "hello", **fields}).encode())
    assert (found.status, found.param, found.kind) == (400, param, "invalid_request_error")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -2, "temperature": -1}, "temperature"),
        ({"top_k": -2}, "top_k"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 101}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"logprobs": 21}, "logprobs"),
        ({"stop": ["a", ""]}, "stop"),
        ({"stop": ["a"] * (MAX_STOPS + 1)}, "stop"),
    ],
)
def test_a_wrong_value_names_its_field(fields: dict[str, object], param: str) -> None:
    with pytest.raises(Refusal) as caught:
        sampling_params(completion(**fields), room=100, default_max_tokens=16)
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"\xff\xfe", b'{"prompt": NaN}', b'{"prompt": "\xff"}', b"[" * 100_000, b'{"echo": ' + b"[" * 100_000],
    ids=["empty", "cut", "not UTF-8", "NaN", "not UTF-8 inside", "deep", "deep inside"],
)
def test_what_is_not_json_is_refused(raw: bytes) -> None:
    assert refusal(raw).status == 400


@pytest.mark.parametrize("raw", [b"[]", b'"prompt"', b"null", b"3"])
def test_a_body_that_is_no_object_is_refused(raw: bytes) -> None:
    assert refusal(raw).status == 400


def test_a_missing_prompt_is_named() -> None:
    assert refusal(b"{}").param == "prompt"
    assert refusal(b"{}", ChatBody).param == "messages"


@pytest.mark.parametrize("name", NEUTRAL)
def test_what_cannot_be_honoured_is_refused_and_its_neutral_values_are_not(name: str) -> None:
    make = completion if name in CompletionBody.__struct_fields__ else chat
    for neutral in (None, *NEUTRAL[name]):
        make(**{name: neutral})
    with pytest.raises(Refusal) as caught:
        make(**{name: [{"type": "function"}]})
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, name, "unsupported")


def test_minus_one_turns_top_k_off() -> None:
    assert sampling_params(completion(top_k=-1), room=100, default_max_tokens=16).top_k == 0


def test_one_stop_string_is_a_list_of_one() -> None:
    assert sampling_params(completion(stop="\n"), room=100, default_max_tokens=16).stop == ("\n",)


def test_max_completion_tokens_wins_in_chat() -> None:
    body = chat(max_tokens=5, max_completion_tokens=7)
    assert sampling_params(body, room=100, default_max_tokens=100).max_tokens == 7
    with pytest.raises(Refusal) as caught:
        sampling_params(chat(max_completion_tokens=101), room=100, default_max_tokens=100)
    assert caught.value.param == "max_completion_tokens"
    assert "100" in caught.value.message


def test_a_default_never_asks_for_more_than_fits() -> None:
    assert sampling_params(completion(), room=3, default_max_tokens=16).max_tokens == 3


def test_logprobs_of_both_apis() -> None:
    assert sampling_params(completion(logprobs=0), room=9, default_max_tokens=1).logprobs == 0
    assert sampling_params(chat(logprobs=True), room=9, default_max_tokens=1).logprobs == 0
    assert sampling_params(chat(logprobs=True, top_logprobs=3), room=9, default_max_tokens=1).logprobs == 3
    assert sampling_params(chat(logprobs=False), room=9, default_max_tokens=1).logprobs is None
    with pytest.raises(Refusal) as caught:
        sampling_params(chat(top_logprobs=3), room=9, default_max_tokens=1)
    assert caught.value.param == "top_logprobs"


def test_prompts_in_all_their_shapes() -> None:
    assert prompts_of("a") == ["a"]
    assert prompts_of(["a", "b"]) == ["a", "b"]
    assert prompts_of([1, 2, 3]) == [[1, 2, 3]]
    assert prompts_of([[1, 2], [3]]) == [[1, 2], [3]]


@pytest.mark.parametrize("prompt", [[], ["a", 1], [[1], "a"], [1, [2]]])
def test_a_mixture_or_nothing_is_no_prompt(prompt: list[str | int | list[int]]) -> None:
    with pytest.raises(Refusal) as caught:
        prompts_of(prompt)
    assert caught.value.param == "prompt"


def test_parts_of_text_are_joined() -> None:
    body = chat(messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])
    assert texts_of(body.messages) == [{"role": "user", "content": "ab"}]


def test_an_image_is_refused() -> None:
    image = {"type": "image_url", "image_url": {"url": "http://example.invalid/a.png"}}
    with pytest.raises(Refusal) as caught:
        texts_of(chat(messages=[{"role": "user", "content": [image]}]).messages)
    assert caught.value.param == "messages"


def test_a_message_says_something_unless_it_is_the_assistant_s() -> None:
    with pytest.raises(Refusal, match=r"messages\[1\] has no content"):
        texts_of(chat(messages=[{"role": "assistant"}, {"role": "user"}]).messages)
    assert texts_of(chat(messages=[{"role": "assistant"}]).messages) == [{"role": "assistant", "content": ""}]


def test_no_messages_are_refused() -> None:
    with pytest.raises(Refusal):
        texts_of(chat(messages=[]).messages)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(CompletionBody.__struct_fields__)), values, max_size=6))
def test_any_object_is_either_understood_or_refused_with_400(fields: dict[str, object]) -> None:
    assert status_of(fields) in (200, 400)


def status_of(fields: dict[str, object]) -> int:
    try:
        body = parse(json.dumps(fields).encode(), CompletionBody)
        prompts_of(body.prompt)
        sampling_params(body, room=100, default_max_tokens=16)
    except Refusal as found:
        return found.status if found.message else 0
    return 200
