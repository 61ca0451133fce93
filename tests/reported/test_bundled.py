"""The bundled engine's own /metrics, as its server writes them, fill every field that its table names."""

import asyncio

from inferdbg.facts.histogram import Histogram
from inferdbg.facts.provenance import Origin
from inferdbg.probes.reported.bundled import TABLE, config, kvcache
from inferdbg.probes.reported.exposition import parse
from inferdbg.probes.reported.tables import Scrape, scheduler, table_of
from tests.engine.served import serving

ORIGIN = Origin("reported", 5, "reported")


def metrics() -> bytes:
    async def asked() -> bytes:
        async with serving() as served:
            await served.post("/v1/completions", prompt="x", max_tokens=3)
            return (await served.get("/metrics")).body

    return asyncio.run(asyncio.wait_for(asked(), 20))


def test_every_row_of_the_table_is_filled() -> None:
    exposition = parse(metrics())
    scrape = Scrape(exposition)
    assert table_of((TABLE,), exposition, "server") is TABLE
    found, caveats = scheduler(TABLE, scrape, ORIGIN)
    assert found is not None
    assert [row.field for row in TABLE.rows if getattr(found, row.field) is None] == []
    assert found.generated_tokens_total == 3
    assert isinstance(found.ttft, Histogram)
    assert caveats == ()


def test_the_pool_is_told_by_state() -> None:
    scrape = Scrape(parse(metrics()))
    limits, cache = config(scrape), kvcache(scrape, ORIGIN)
    assert limits is not None
    assert cache is not None
    assert limits.num_blocks == 8
    assert cache.block_size == limits.block_size
    parts = (cache.used_blocks, cache.cached_blocks, cache.free_blocks)
    assert sum(part or 0 for part in parts) == cache.num_blocks
