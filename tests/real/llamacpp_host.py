"""Hosts llama.cpp's server in the environment that has it; run by tests.real.servers.

python llamacpp_host.py MODEL.gguf PORT [SPECULATION]

``SPECULATION``: the name of a kind of it, as ``NGRAM_MAP_K``.
"""

import signal
import sys

import xllamacpp  # type: ignore[import-not-found]


def main(model: str, port: str, speculation: str = "") -> None:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.n_parallel, parameters.n_ctx = 2, 4096
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.endpoint_metrics = parameters.endpoint_slots = True
    parameters.hostnames, parameters.port = ["127.0.0.1"], int(port)
    if speculation:
        kinds = xllamacpp.common_speculative_type
        parameters.speculative.types = [getattr(kinds, f"COMMON_SPECULATIVE_TYPE_{speculation}")]
    server = xllamacpp.Server(parameters)  # answers from here on
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
