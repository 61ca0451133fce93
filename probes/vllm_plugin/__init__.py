"""Carried into somebody else's vLLM by ``inferdbg plugin vllm``: keeps a black box there, step by step, and no more.

    vLLM's EngineCore process                                  a mapped file, as the bundled engine keeps one
    Scheduler  ──schedule, update_from_output──► watcher ──►   pulse, counters, histograms, steps, events
    KVCacheManager ──allocate_slots, free──────► requests ─►   requests.*, tables
    BlockPool ──get_new_blocks, touch, free────► pool ─────►   blocks.*, pool

It must run on CPython 3.10 to 3.13 with the standard library alone, so all it needs travels with it (``carry.py``): the
writer of black boxes, and the words of its columns. Whatever reads boxes then reads vLLM's, alive, hung or dead.
"""
