"""Puts our calls around methods of living objects, so that an error of ours ends the watching and never the watched."""

import functools
from collections.abc import Callable
from typing import Any

Foreign = Any
"""An object of vLLM's: what we know of it is names of attributes, and each version may lack some."""


class Hooks:
    """``failed`` is called once, with the first exception of any call of ours; by then every method is as before."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._placed: list[tuple[Foreign, str]] = []
        self.on = True

    def around(
        self,
        owner: Foreign,
        name: str,
        *,
        before: Callable[..., None] | None = None,
        after: Callable[..., None] | None = None,
    ) -> bool:
        """``before`` gets the arguments, ``after`` the result and the arguments. False: there is no such method."""

        def make(original: Callable[..., Foreign]) -> Callable[..., Foreign]:
            def hooked(*args: Foreign, **kwargs: Foreign) -> Foreign:
                if before is not None and self.on:
                    try:
                        before(*args, **kwargs)
                    except Exception as error:  # noqa: BLE001  vLLM goes on, whatever it is
                        self.fail(error)
                result = original(*args, **kwargs)
                if after is not None and self.on:
                    try:
                        after(result, *args, **kwargs)
                    except Exception as error:  # noqa: BLE001  vLLM goes on, whatever it is
                        self.fail(error)
                return result

            return hooked

        return self.replace(owner, name, make)

    def replace(
        self, owner: Foreign, name: str, make: Callable[[Callable[..., Foreign]], Callable[..., Foreign]]
    ) -> bool:
        """``make`` turns the method into ours, which guards itself: see ``fail``."""
        original = getattr(owner, name, None)
        if not callable(original):
            return False
        setattr(owner, name, functools.wraps(original)(make(original)))
        self._placed.append((owner, name))
        return True

    def remove(self) -> None:
        """Every method is its class's again. Calls that are under way end without us."""
        self.on = False
        for owner, name in self._placed:
            owner.__dict__.pop(name, None)
        self._placed.clear()

    def fail(self, error: Exception) -> None:
        if self.on:
            self.remove()
            self._failed(error)
