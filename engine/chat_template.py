"""Chat templates: Jinja as models ship them, rendered in a sandbox with the helpers that transformers gives them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .errors import BadRequest, ModelError


class ChatTemplate:
    """``tokens``: texts of the special tokens (bos_token, eos_token, ...) that templates write."""

    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        """Raises ModelError when the template cannot be parsed."""
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ModelError(f"the chat template of the model cannot be parsed: {error}") from error
        self._tokens = dict(tokens)

    def render(self, messages: Sequence[Mapping[str, object]], *, add_generation_prompt: bool = True) -> str:
        """The text that the model was trained to see; raises BadRequest when the template refuses the messages."""
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                **self._tokens,
            )
        except (TemplateError, TypeError, ValueError, LookupError, RecursionError) as error:
            raise BadRequest(f"the model's chat template refuses these messages: {error}") from error


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    raise TemplateError(message)
