"""What clients get: both APIs whole and streamed, clear refusals, and nothing left running when they go away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from inferdbg.engine.state import Pulse

from .served import MODEL, LettersEngine, happens, serving

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hi"}]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def test_a_completion_is_told_whole() -> None:
    async def test() -> None:
        async with serving() as served:
            answer = await served.post(COMPLETIONS, prompt="xyz", max_tokens=3)
            body = answer.json()
            assert answer.status == 200
            assert (body["object"], body["model"]) == ("text_completion", MODEL)
            assert body["choices"] == [{"index": 0, "text": "abc", "logprobs": None, "finish_reason": "length"}]
            assert body["usage"] == {
                "prompt_tokens": 3,
                "completion_tokens": 3,
                "total_tokens": 6,
                "prompt_tokens_details": {"cached_tokens": 1},
            }

    run(test())


def test_a_chat_is_told_whole() -> None:
    async def test() -> None:
        async with serving() as served:
            body = (await served.post(CHAT, messages=HELLO, max_tokens=2, model=MODEL)).json()
            assert body["object"] == "chat.completion"
            message = {"role": "assistant", "content": "ab"}
            assert body["choices"] == [{"index": 0, "message": message, "logprobs": None, "finish_reason": "length"}]

    run(test())


def test_without_a_limit_a_chat_goes_on_to_the_end_of_the_context() -> None:
    async def test() -> None:
        async with serving() as served:
            body = (await served.post(CHAT, messages=HELLO)).json()
            assert body["usage"]["total_tokens"] == 100

    run(test())


def test_a_streamed_completion_is_the_whole_one_in_pieces() -> None:
    async def test() -> None:
        async with serving() as served:
            answer = await served.post(COMPLETIONS, prompt="x", max_tokens=4, stream=True)
            events = answer.events()
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert "".join(event["choices"][0]["text"] for event in events) == "abcd"
            assert [event["choices"][0]["finish_reason"] for event in events] == [None, None, None, "length"]
            assert all("usage" not in event for event in events)
            assert len({event["id"] for event in events}) == 1

    run(test())


def test_a_streamed_chat_begins_with_its_role_and_ends_with_usage_when_asked() -> None:
    async def test() -> None:
        async with serving() as served:
            answer = await served.post(
                CHAT, messages=HELLO, max_tokens=2, stream=True, stream_options={"include_usage": True}
            )
            first, *middle, last = answer.events()
            assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
            assert [event["choices"][0]["delta"]["content"] for event in middle] == ["a", "b"]
            assert all(event["usage"] is None for event in (first, *middle))
            assert last["choices"] == []
            assert last["usage"]["completion_tokens"] == 2

    run(test())


def test_choices_are_numbered_prompt_by_prompt() -> None:
    async def test() -> None:
        async with serving() as served:
            body = (await served.post(COMPLETIONS, prompt=["p", "qq"], n=2, max_tokens=1)).json()
            assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
            assert body["usage"]["prompt_tokens"] == 3
            assert body["usage"]["completion_tokens"] == 4
            assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}

    run(test())


def test_token_ids_are_a_prompt_too() -> None:
    async def test() -> None:
        async with serving() as served:
            assert (await served.post(COMPLETIONS, prompt=[1, 2, 3])).json()["usage"]["prompt_tokens"] == 3
            wrong = await served.post(COMPLETIONS, prompt=[1, 256])
            assert (wrong.status, wrong.error()["param"]) == (400, "prompt")

    run(test())


def test_logprobs_in_the_shapes_of_both_apis() -> None:
    async def test() -> None:
        async with serving() as served:
            completion = (await served.post(COMPLETIONS, prompt="x", max_tokens=2, logprobs=2)).json()
            assert completion["choices"][0]["logprobs"] == {
                "tokens": ["a", "b"],
                "token_logprobs": [-0.5, -0.5],
                "top_logprobs": [{"a": -0.5, "b": -1.5}, {"b": -0.5, "c": -1.5}],
                "text_offset": [0, 1],
            }
            chat = (await served.post(CHAT, messages=HELLO, max_tokens=1, logprobs=True, top_logprobs=1)).json()
            entry = {"token": "a", "logprob": -0.5, "bytes": [97]}
            assert chat["choices"][0]["logprobs"] == {"content": [entry | {"top_logprobs": [entry]}]}
            streamed = await served.post(COMPLETIONS, prompt="x", max_tokens=2, logprobs=0, stream=True)
            offsets = [event["choices"][0]["logprobs"]["text_offset"] for event in streamed.events()]
            assert offsets == [[0], [1]]

    run(test())


def test_bad_requests_are_refused_with_what_was_wrong() -> None:
    async def test() -> None:
        async with serving() as served:
            for answer, status, param, code in (
                (await served.ask("POST", COMPLETIONS, b"{"), 400, None, "invalid_json"),
                (await served.post(COMPLETIONS, prompt="x", model="gpt"), 404, "model", "model_not_found"),
                (await served.post(COMPLETIONS, prompt="x" * 100), 400, "prompt", "context_length_exceeded"),
                (await served.post(COMPLETIONS, prompt="x" * 99, max_tokens=2), 400, "max_tokens", None),
                (await served.post(COMPLETIONS, prompt=""), 400, "prompt", None),
                (await served.post(COMPLETIONS, prompt="x", echo=True), 400, "echo", "unsupported"),
                (await served.post(CHAT, messages=HELLO, temperature=-1), 400, "temperature", None),
                (await served.post(COMPLETIONS, prompt="x", n=5), 400, "n", None),
                (await served.post(COMPLETIONS, prompt=["x"] * 5), 400, "prompt", None),
            ):
                error = answer.error()
                assert (answer.status, error["param"]) == (status, param)
                assert code in (None, error["code"])
            too_long = (await served.post(COMPLETIONS, prompt="x" * 120)).error()
            assert "120" in str(too_long["message"])
            assert "100" in str(too_long["message"])

    run(test())


def test_unknown_paths_and_methods_are_refused_in_the_same_shape() -> None:
    async def test() -> None:
        async with serving() as served:
            assert (await served.get("/v1/nothing")).status == 404
            assert (await served.get("/v1/nothing")).error()["type"] == "invalid_request_error"
            assert (await served.get(COMPLETIONS)).status == 405

    run(test())


def test_a_body_is_not_read_beyond_its_limit() -> None:
    async def test() -> None:
        async with serving() as served:
            part = b"x" * (3 << 20)
            assert (await served.ask("POST", COMPLETIONS, part, part, part)).status == 413
            assert (await served.ask("POST", COMPLETIONS, part, part, part, declare=False)).status == 413

    run(test())


def test_half_a_surrogate_pair_is_called_invalid_unicode() -> None:
    async def test() -> None:
        async with serving() as served:
            for text in (b"\\ud800", b"\\ud800abcdefgh", b"\\udc00xxxxxxxx"):
                answer = await served.ask("POST", COMPLETIONS, b'{"prompt": "' + text + b'"}')
                assert answer.status == 400
                assert "invalid Unicode" in answer.error()["message"]
            cut = await served.ask("POST", COMPLETIONS, b'{"prompt": "abc')
            assert "truncated" in cut.error()["message"]

    run(test())


def test_a_full_queue_sends_clients_away_and_says_when_to_come_back() -> None:
    async def test() -> None:
        async with serving() as served:
            served.engine.gate.clear()
            crowd = [asyncio.create_task(served.post(COMPLETIONS, prompt="x", max_tokens=1)) for _ in range(12)]
            refused = [await next(asyncio.as_completed(crowd))]
            assert refused[0].status == 429
            assert int(refused[0].headers["retry-after"]) >= 1
            assert refused[0].error()["code"] == "queue_full"
            served.engine.gate.set()
            statuses = [(await task).status for task in crowd]
            assert set(statuses) == {200, 429}
            assert statuses.count(200) >= 4

    run(test())


def test_all_prompts_of_a_request_are_taken_or_none() -> None:
    async def test() -> None:
        async with serving() as served:
            answer = await served.post(COMPLETIONS, prompt=["a", "b", "x" * 99], max_tokens=1, n=1)
            assert answer.status == 200
            steps = served.engine.columns["pulse"][Pulse.STEP]
            answer = await served.post(COMPLETIONS, prompt=["a", "b", ""], max_tokens=90)
            assert answer.status == 400
            assert served.engine.sequences == []
            assert served.engine.columns["pulse"][Pulse.STEP] == steps

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_ends_its_request(stream: bool) -> None:
    async def test() -> None:
        async with serving() as served:
            served.engine.gate.clear()
            gone = asyncio.Event()
            asking = asyncio.create_task(served.post(COMPLETIONS, gone, prompt="x", max_tokens=90, stream=stream))
            await happens(served.engine.in_step)
            gone.set()
            await asking
            served.engine.gate.set()
            await happens(served.engine.dropped)
            assert served.engine.sequences == []
            assert served.thread.requests_in_flight == 0
            assert (await served.post(COMPLETIONS, prompt="x", max_tokens=1)).status == 200
            assert served.thread.finished["abort"] == 1

    run(test())


def test_a_client_may_go_away_before_the_engine_has_looked_at_its_request() -> None:
    async def test() -> None:
        async with serving() as served:
            served.engine.gate.clear()
            first = asyncio.create_task(served.post(COMPLETIONS, prompt="x", max_tokens=1))
            await happens(served.engine.in_step)
            gone = asyncio.Event()
            gone.set()
            await served.post(COMPLETIONS, gone, prompt="y", max_tokens=90)
            served.engine.gate.set()
            assert (await first).status == 200
            await happens(served.engine.dropped)
            assert len(served.engine.aborted) == 1

    run(test())


def test_a_request_that_the_engine_gives_up_is_a_server_error_and_others_go_on() -> None:
    async def test() -> None:
        async with serving() as served:
            served.engine.spoil = "NaN in the logits"
            whole = await served.post(COMPLETIONS, prompt="x", max_tokens=5)
            assert (whole.status, whole.error()["code"]) == (500, "request_failed")
            assert "NaN" in str(whole.error()["message"])
            streamed = await served.post(COMPLETIONS, prompt="x", max_tokens=5, stream=True)
            assert streamed.events()[-1]["error"]["code"] == "request_failed"
            served.engine.spoil = ""
            assert (await served.post(COMPLETIONS, prompt="x", max_tokens=5)).status == 200
            assert served.thread.finished == {"stop": 0, "length": 1, "abort": 0, "error": 2}

    run(test())


def test_when_the_engine_dies_clients_and_health_are_told() -> None:
    async def test() -> None:
        async with serving() as served:
            served.engine.gate.clear()
            whole = asyncio.create_task(served.post(COMPLETIONS, prompt="x"))
            await happens(served.engine.in_step)
            served.engine.crash = ValueError("boom")
            served.engine.gate.set()
            answer = await whole
            assert (answer.status, answer.error()["code"]) == (500, "engine_failed")
            health = await served.get("/health")
            assert (health.status, health.json()["status"]) == (503, "failed")
            assert "boom" in str(health.json()["detail"])
            assert (await served.post(COMPLETIONS, prompt="x")).status == 503

    run(test())


def test_a_text_that_can_never_fit_is_refused_without_tokenizing_it() -> None:
    async def test() -> None:
        async with serving() as served:
            text = "x" * 5_000
            asked = (
                await served.post(COMPLETIONS, prompt=text),
                await served.post(CHAT, messages=[{"role": "user", "content": text}]),
            )
            for answer, param in zip(asked, ("prompt", "messages"), strict=True):
                error = answer.error()
                assert (answer.status, error["code"], error["param"]) == (400, "context_length_exceeded", param)
                assert "at least 50" in error["message"]
                assert "may have 100 here" in error["message"]

    run(test())


def test_health_falls_while_a_step_hangs_and_new_requests_are_refused() -> None:
    async def test() -> None:
        async with serving() as served:
            assert (await served.get("/health")).status == 200
            served.engine.gate.clear()
            hanging = asyncio.create_task(served.post(COMPLETIONS, prompt="x", max_tokens=1))
            await happens(served.engine.in_step)
            served.thread.vitals.moved_ns = time.monotonic_ns() - 3_000_000_000
            health = await served.get("/health")
            body = health.json()
            assert health.status == 503
            assert (body["status"], body["phase"], body["step"]) == ("stalled", "forward", 1)
            assert body["seconds"] >= 3
            refused = await served.post(COMPLETIONS, prompt="x")
            assert (refused.status, refused.error()["code"]) == (503, "engine_stalled")
            served.engine.gate.set()
            assert (await hanging).status == 200
            assert (await served.get("/health")).status == 200

    run(test())


def test_a_stopping_server_finishes_what_it_has_and_takes_nothing_new() -> None:
    async def test() -> None:
        async with serving() as served:
            served.engine.gate.clear()
            running = asyncio.create_task(served.post(COMPLETIONS, prompt="x", max_tokens=2))
            await happens(served.engine.in_step)
            served.api.stopping = True
            assert (await served.post(COMPLETIONS, prompt="x")).error()["code"] == "stopping"
            assert (await served.get("/health")).status == 503
            served.engine.gate.set()
            assert (await running).json()["choices"][0]["text"] == "ab"

    run(test())


def test_stopping_the_engine_ends_requests_and_closes_it() -> None:
    async def test() -> None:
        async with serving() as served:
            served.engine.gate.clear()
            running = asyncio.create_task(served.post(COMPLETIONS, prompt="x", max_tokens=90))
            await happens(served.engine.in_step)
            served.thread.stop()
            served.engine.gate.set()
            assert (await running).json()["choices"][0]["finish_reason"] == "abort"
            await happens(served.engine.closed)

    run(test())


def test_the_model_and_its_limit_are_listed() -> None:
    async def test() -> None:
        async with serving() as served:
            body = (await served.get("/v1/models")).json()
            assert body["data"][0]["id"] == MODEL
            assert body["data"][0]["max_model_len"] == 100
            assert (await served.get("/version")).json() == {"version": "9.9"}

    run(test())


def metrics_of(text: str) -> dict[str, float]:
    """Value by name and labels; the parser raises on what is not valid."""
    return {
        sample.name
        + "".join(
            f",{key}={value}" for key, value in sorted(sample.labels.items()) if key != "model_name"
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_are_valid_and_named_as_the_field_names_them() -> None:
    async def test() -> None:
        async with serving() as served:
            await served.post(COMPLETIONS, prompt="x", max_tokens=3)
            answer = await served.get("/metrics")
            found = metrics_of(answer.body.decode())
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
            assert found["inferdbg:generation_tokens_total"] == 3
            assert found["inferdbg:request_success_total,finished_reason=length"] == 1
            assert found["inferdbg:iteration_tokens_total_count"] == 3
            assert found["inferdbg:iteration_tokens_total_sum"] == 3
            for name in (
                "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prompt_tokens_total",
                "num_preemptions_total", "prefix_cache_queries_total", "prefix_cache_hits_total",
                "time_to_first_token_seconds_count", "inter_token_latency_seconds_sum",
                "e2e_request_latency_seconds_bucket,le=+Inf", "request_queue_time_seconds_bucket,le=0.5",
            ):  # fmt: skip
                assert f"inferdbg:{name}" in found
            assert 'num_gpu_blocks="8"' in answer.body.decode()

    run(test())


def test_buckets_of_metrics_are_cumulative() -> None:
    engine = LettersEngine()
    engine.columns["histograms.ttft"][0] = 2
    engine.columns["histograms.ttft"][3] = 5

    async def test() -> None:
        async with serving(engine) as served:
            text = (await served.get("/metrics")).body.decode()
            found = metrics_of(text)
            assert found["inferdbg:time_to_first_token_seconds_bucket,le=0.0001"] == 2
            assert found["inferdbg:time_to_first_token_seconds_bucket,le=+Inf"] == 7
            assert found["inferdbg:time_to_first_token_seconds_count"] == 7

    run(test())
