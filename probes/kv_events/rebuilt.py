"""The blocks of a server rebuilt from its KV events, and what of it is certain."""

from collections.abc import Iterable
from typing import Literal

from inferdbg import text
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.events import Event, Events
from inferdbg.facts.sections.prefixes import Prefix, Prefixes, PrefixPool
from inferdbg.facts.window import SECOND

from .batches import Batch, Cleared, PoolName, Removed, Stored
from .tree import Shape, Tree

MOST_POOLS = 64
MOST_SHARED = 20
_SHAPE_SHARE = 20
"""The tree is worked out again after so many times what it took: at most a twentieth of a processor."""


class _News:
    """What befell one pool since the last look."""

    def __init__(self) -> None:
        self.blocks = self.tokens = 0
        self.mono_ns = 0


class Rebuilt:
    """All pools of all ranks of one server."""

    def __init__(self) -> None:
        self.trees: dict[PoolName, Tree] = {}
        self.batches = self.stored = self.removed = self.cleared = self.unreadable = 0
        self.last_stored_ns: int | None = None
        self.last_removed_ns: int | None = None
        self._doubts: dict[int, dict[str, int]] = {}  # why blocks of a rank are not certain, and how often
        self._news: dict[tuple[str, PoolName | None], _News] = {}
        self._seq = 0
        self._shapes: dict[PoolName, Shape] = {}
        self._shape_ns: int | None = None
        self._shape_cost_ns = 0
        self._shape_of = -1  # batches heard when it was worked out

    def apply(self, batch: Batch, now_ns: int) -> None:
        """One batch, in its place in the order."""
        self.batches += 1
        if not batch.readable:
            self.doubt(batch.rank, "batch, that could not be read")
        if batch.unknown:
            self.doubt(batch.rank, "event, of a kind not known here", batch.unknown)
        for change in batch.changes:
            if isinstance(change, Stored):
                self._store(change, batch.wall_ns, now_ns)
            elif isinstance(change, Removed):
                self._remove(change, now_ns)
            else:
                self._clear(change, now_ns)

    def doubt(self, rank: int, what: str, count: int = 1) -> None:
        """From now on until all is cleared the blocks of this rank are not certain. ``what``: a noun that can be
        counted, and whatever follows it after a comma."""
        doubts = self._doubts.setdefault(rank, {})
        doubts[what] = doubts.get(what, 0) + count

    def restart(self, rank: int) -> None:
        """The server began anew: nothing is held."""
        self._doubts.pop(rank, None)
        for name in [name for name in self.trees if name.rank == rank]:
            del self.trees[name]

    def doubts(self) -> list[str]:
        found = []
        for doubts in self._doubts.values():
            for what, count in doubts.items():
                noun, _, after = what.partition(", ")
                several = noun if count == 1 else f"{noun}{'es' if noun.endswith('ch') else 's'}"
                found.append(f"{text.count(count)} {several}{after and ' '}{after}")
        return found

    def prefixes(self, origin: Origin, missed: int | None, replayed: int, more_doubts: Iterable[str]) -> Prefixes:
        """The section. ``more_doubts``: why it is not certain, beside what the batches showed."""
        why = "; ".join([*more_doubts, *self.doubts()])
        return Prefixes(
            origin,
            complete=not why,
            why=why,
            pools=tuple(self._pool(name) for name in sorted(self.trees, key=_in_words)),
            shared=self._shared(),
            stored_blocks_total=self.stored,
            removed_blocks_total=self.removed,
            cleared_total=self.cleared,
            batches_total=self.batches,
            replayed_batches_total=replayed,
            missed_batches=missed,
            unreadable_total=self.unreadable,
            last_stored_ns=self.last_stored_ns,
            last_removed_ns=self.last_removed_ns,
            shape_ns=self._shape_ns,
        )

    def shape_due(self, now_ns: int) -> bool:
        """Whether the tree changed since it was worked out, long enough ago for what that costs."""
        if self._shape_of == self.batches:
            return False
        return self._shape_ns is None or now_ns - self._shape_ns >= max(SECOND, _SHAPE_SHARE * self._shape_cost_ns)

    def work_out(self, now_ns: int) -> None:
        """Works out depths and sharing of all pools."""
        self._shapes = {name: tree.shape(MOST_SHARED) for name, tree in self.trees.items()}
        self._shape_ns, self._shape_of = now_ns, self.batches

    def shape_took(self, cost_ns: int) -> None:
        self._shape_cost_ns = cost_ns

    def happened(self, origin: Origin) -> Events:
        """What befell each pool since this was last asked, one event a kind."""
        items: list[Event] = []
        for (kind, name), news in sorted(self._news.items(), key=lambda item: item[1].mono_ns):
            where = f" in {_in_words(name)}" if name is not None else ""
            said = f"{text.counted(news.blocks, 'block')}{where}" if name is not None else "all blocks"
            items.append(Event(self._seq, news.mono_ns, None, kind, tokens=news.tokens or None, text=said))
            self._seq += 1
        self._news.clear()
        return Events(origin, tuple(items))

    def _store(self, change: Stored, wall_ns: int, now_ns: int) -> None:
        self.stored += len(change.hashes)
        self.last_stored_ns = now_ns
        self._note("stored", change.pool, len(change.hashes), change.tokens, now_ns)
        tree = self._tree(change.pool)
        if tree is None:
            return
        tree.kind = change.kind or tree.kind
        tree.skips |= change.skipped
        tree.store(change.hashes, change.parent, change.block_size, wall_ns)
        if tree.refused:
            self.doubt(change.pool.rank, "block, more than are kept here", tree.refused)
            tree.refused = 0

    def _remove(self, change: Removed, now_ns: int) -> None:
        self.removed += len(change.hashes)
        self.last_removed_ns = now_ns
        self._note("removed", change.pool, len(change.hashes), 0, now_ns)
        tree = self.trees.get(change.pool)
        unknown = len(change.hashes) - (0 if tree is None else tree.remove(change.hashes))
        if unknown:
            self.doubt(change.pool.rank, "block, removed and never seen stored", unknown)

    def _clear(self, change: Cleared, now_ns: int) -> None:
        """Of several memories it does not say which one was cleared."""
        self.cleared += 1
        self.last_removed_ns = now_ns
        self._note("cleared", None, 1, 0, now_ns)
        self._doubts.pop(change.rank, None)
        held = {name.medium for name, tree in self.trees.items() if name.rank == change.rank and tree.blocks}
        if len(held) > 1:
            self.doubt(change.rank, f"clearing, of {' or '.join(sorted(map(str, held)))}: it does not say")
        for name, tree in self.trees.items():
            if name.rank == change.rank:
                tree.clear()

    def _tree(self, name: PoolName) -> Tree | None:
        if name not in self.trees:
            if len(self.trees) >= MOST_POOLS:
                self.doubt(name.rank, "event, of more pools than are kept here")
                return None
            self.trees[name] = Tree()
        return self.trees[name]

    def _note(
        self,
        kind: Literal["stored", "removed", "cleared"],
        name: PoolName | None,
        blocks: int,
        tokens: int,
        now_ns: int,
    ) -> None:
        if len(self._news) > 3 * MOST_POOLS and (kind, name) not in self._news:
            return
        news = self._news.setdefault((kind, name), _News())
        news.blocks += blocks
        news.tokens += tokens
        news.mono_ns = now_ns

    def _pool(self, name: PoolName) -> PrefixPool:
        tree, shape = self.trees[name], self._shapes.get(name)
        return PrefixPool(
            *name,
            block_size=tree.block_size,
            blocks=len(tree.blocks),
            tokens=tree.tokens,
            copies=tree.copies,
            kind=tree.kind,
            skips=tree.skips,
            first_blocks=None if shape is None else shape.first_blocks,
            detached=None if shape is None else shape.detached,
            ends=None if shape is None else shape.ends,
            deepest=None if shape is None else shape.deepest,
            depths=() if shape is None else shape.depths,
            branchings=() if shape is None else shape.branchings,
        )

    def _shared(self) -> tuple[Prefix, ...]:
        best = [(one, name) for name, shape in self._shapes.items() for one in shape.shared if name in self.trees]
        best.sort(key=lambda found: (-found[0].saved_tokens, _in_words(found[1]), found[0].hash))
        return tuple(
            Prefix(
                f"{one.hash:016x}",
                *name,
                depth=one.block.depth,
                tokens=one.block.tokens_up_to,
                branches=one.block.children,
                ends=one.block.ends,
                below=one.block.below,
                stored_wall_ns=one.block.stored_wall_ns,
            )
            for one, name in best[:MOST_SHARED]
        )


def _in_words(name: PoolName) -> str:
    parts = (name.medium or "memory", "" if name.group in (0, None) else f"group {name.group}")
    rank = f"rank {name.rank}" if name.rank else ""
    return " ".join(part for part in (rank, *parts) if part)
