"""The bundled engine behind OpenAI's HTTP API.

    listener = bind("127.0.0.1", 8000)            # ListenError: port in use, ...; before the model is loaded
    serve(engine, listener=listener, drain_s=10)  # blocks until SIGTERM or SIGINT, then closes the engine

``serve(engine, *, host, port, listener, model_name, drain_s, access_log, ready) -> None``: see lifecycle.
``ready(url)`` is called once it listens. Errors for people are EngineErrors: ListenError, EngineStopped.
"""

from .lifecycle import EngineStopped, serve
from .listen import ListenError, bind

__all__ = ["EngineStopped", "ListenError", "bind", "serve"]
