"""PyTorch's caching allocator, block by block: what it reserves for a sequence of allocations.

A request is rounded to 512 bytes and served by the smallest free block of its pool that is large
enough, cut where enough is left. Without one the allocator requests a segment from the device: 2
MiB for requests up to 1 MiB, 20 MiB for those below 10 MiB, else the request rounded to 2 MiB. What
is freed joins its free neighbours of the same segment, and stays. Free segments go back before that
request, and again if it fails.

Source: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2 (constants, get_free_block, alloc_block,
should_split, garbage_collect_cached_blocks, ExpandableSegment), and docs/source/notes/cuda.rst for
the settings. One stream; no private pools of CUDA graphs."""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

MIB = 2**20
_LEAST = 512  # every size is a multiple of it
_SMALL = MIB  # the largest request of the small pool
_SMALL_SEGMENT = 2 * MIB
_MEDIUM = 10 * MIB  # requests of the large pool below this share segments
_MEDIUM_SEGMENT = 20 * MIB
_LARGE_MULTIPLE = 2 * MIB
_APART = 2**40  # pages between the addresses of expandable segments, which never meet


@dataclass(frozen=True)
class Settings:
    """PYTORCH_CUDA_ALLOC_CONF, and the memory there is. Sizes in bytes; 0: no limit."""

    expandable_segments: bool = False
    max_split: int = 0  # max_split_size_mb: blocks of this size are not cut
    collect_above: float = 0.0  # garbage_collection_threshold, a share of the device
    capacity: int = 0  # of the device


@dataclass(frozen=True)
class Reserved:
    """Memory of a sequence of allocations, in bytes."""

    peak: int  # reserved at most
    allocated: int  # allocated at most, in multiples of 512
    last: int  # reserved at the end
    retries: int  # times that the device refused and free segments went back


class OutOfMemory(Exception):
    """No free block, no room for a segment, and nothing to give back."""


@dataclass(eq=False)
class _Block:
    """A part of a segment, linked with its neighbours. One that is not free is in use, or the
    address space of an expandable segment from which its pages were taken."""

    pool: int  # 0 small, 1 large
    start: int
    size: int
    free: bool = True
    before: _Block | None = None
    after: _Block | None = None
    freed_at: int = 0  # requests served when it was freed: its age for garbage collection

    @property
    def whole(self) -> bool:
        """Whether it is a segment that is not cut."""
        return self.before is None and self.after is None


def rounded(size: int) -> int:
    """Bytes of the block that a request gets at least."""
    return max(_LEAST, -(-size // _LEAST) * _LEAST)


def segment_bytes(size: int) -> int:
    """Bytes of the segment requested from the device for a rounded size."""
    if size <= _SMALL:
        return _SMALL_SEGMENT
    if size < _MEDIUM:
        return _MEDIUM_SEGMENT
    return -(-size // _LARGE_MULTIPLE) * _LARGE_MULTIPLE


class Allocator:
    """The state of one device and stream. Only this class has state here."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.reserved = self.allocated = self.peak = self.most = self.retries = 0
        self._requests = 0
        # free blocks of each pool, by size, then address
        self._free: tuple[list[tuple[int, int, _Block]], ...] = ([], [])
        self._next = 0  # addresses of segments only grow
        self._last: list[_Block | None] = [None, None]  # end of each pool's expandable segment

    def allocate(self, size: int) -> _Block:
        """A block of at least this size. Raises OutOfMemory."""
        size = rounded(size)
        pool = int(size > _SMALL)
        self._requests += 1
        block = self._fit(pool, size)
        if block is None and self.settings.collect_above and self.settings.capacity:
            self._collect()
        if block is None:
            block = self._from_device(pool, size)
        if block is None and self._enough_given_back(size):
            block = self._from_device(pool, size)
        if block is None:
            self.retries += 1
            self._give_back()
            block = self._from_device(pool, size)
        if block is None:
            raise OutOfMemory(f"{size} bytes, {self.reserved} reserved, {self.allocated} in use")
        self._cut(block, size)
        block.free = False
        self.allocated += block.size
        self.most = max(self.most, self.allocated)
        return block

    def free(self, block: _Block) -> None:
        """Give a block back to its pool, joined with its free neighbours."""
        self.allocated -= block.size
        block.free, block.freed_at = True, self._requests
        for other in (block.before, block.after):
            if other is not None and other.free:
                self._take(other)
                block = _joined(*((other, block) if other is block.before else (block, other)))
        self._put(block)
        self._ends(block)

    @property
    def unused(self) -> int:
        """Bytes of free blocks."""
        return sum(size for free in self._free for size, _, _ in free)

    # -------------------------------------------------------------------------- free blocks

    def _put(self, block: _Block) -> None:
        bisect.insort(self._free[block.pool], (block.size, block.start, block))

    def _take(self, block: _Block) -> None:
        free = self._free[block.pool]
        del free[bisect.bisect_left(free, (block.size, block.start))]

    def _fit(self, pool: int, size: int) -> _Block | None:
        """The smallest free block that is large enough and that may be used for this."""
        free, limit = self._free[pool], self.settings.max_split
        at = bisect.bisect_left(free, (size, -1))
        if at == len(free):
            return None
        block = free[at][2]
        if limit and not self.settings.expandable_segments:
            if size < limit <= block.size:
                return None
            if size >= limit and block.size >= size + _MEDIUM_SEGMENT:
                return None
        self._take(block)
        return block

    def _cut(self, block: _Block, size: int) -> None:
        """Put what a request leaves of a block back, where it is worth a block."""
        left, settings = block.size - size, self.settings
        if block.pool == 0 or settings.expandable_segments:
            worth = left >= _LEAST
        else:
            worth = left > _SMALL and not (settings.max_split and size >= settings.max_split)
        if not worth:
            return
        rest = _Block(block.pool, block.start + size, left, before=block, after=block.after)
        rest.freed_at = self._requests
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        self._put(rest)
        self._ends(rest)

    def _ends(self, block: _Block) -> None:
        if self.settings.expandable_segments and block.after is None:
            self._last[block.pool] = block

    # ------------------------------------------------------------------------------- device

    def _from_device(self, pool: int, size: int) -> _Block | None:
        if self.settings.expandable_segments:
            return self._grown(pool, size)
        wanted = segment_bytes(size)
        if self.settings.capacity and self.reserved + wanted > self.settings.capacity:
            return None
        block = _Block(pool, self._next, wanted)
        self._next += wanted
        self._reserve(wanted)
        return block

    def _grown(self, pool: int, size: int) -> _Block | None:
        """The end of the pool's one segment, with as many pages more as the request needs."""
        page = (_SMALL_SEGMENT, _MEDIUM_SEGMENT)[pool]
        last = self._last[pool]
        target = last.size if last is not None and last.free else 0
        pages = -(-(size - target) // page) * page
        if self.settings.capacity and self.reserved + pages > self.settings.capacity:
            return None
        self._reserve(pages)
        if target and last is not None:
            self._take(last)
            last.size += pages
            return last
        start = pool * page * _APART if last is None else last.start + last.size
        block = _Block(pool, start, pages, before=last)
        if last is not None:
            last.after = block
        self._last[pool] = block
        return block

    def _reserve(self, size: int) -> None:
        self.reserved += size
        self.peak = max(self.peak, self.reserved)

    def _release(self, block: _Block) -> None:
        self._take(block)
        self.reserved -= block.size

    def _collect(self) -> None:
        """Free segments that are not cut go back while more than the threshold is reserved: in
        turns those at least as old as the mean of them, in requests served since."""
        threshold = self.settings.collect_above * self.settings.capacity
        while self.reserved > threshold:
            whole = [block for _, _, block in self._free[1] if block.whole]
            ages = [self._requests - block.freed_at for block in whole]
            old = [b for b, age in zip(whole, ages, strict=True) if age * len(ages) >= sum(ages)]
            if not old:
                return
            for block in old:
                self._release(block)

    def _enough_given_back(self, size: int) -> bool:
        """With a split limit, segments that are not cut because of it go back first: the smallest
        that suffices, else the largest until they do."""
        limit = self.settings.max_split
        if not limit:
            return False
        wanted, free = max(size, limit), self._free[1]
        at = bisect.bisect_left(free, (wanted, -1))
        if at < len(free):
            self._release(free[at][2])
            return True
        given = 0
        for block_size, _, block in reversed(list(free)):
            if given >= wanted or block_size < limit:
                break
            self._release(block)
            given += block_size
        return given >= wanted

    def _give_back(self) -> None:
        """Every free segment that is not cut, and the free pages of expandable ones."""
        for pool, page in enumerate((_SMALL_SEGMENT, _MEDIUM_SEGMENT)):
            for _, _, block in list(self._free[pool]):
                if self.settings.expandable_segments:
                    self._unmap(block, page)
                elif block.whole:
                    self._release(block)

    def _unmap(self, block: _Block, page: int) -> None:
        """The whole pages of a free block of an expandable segment leave it; no other block gets
        their addresses, of which there are enough."""
        start = -(-block.start // page) * page
        end = (block.start + block.size) // page * page
        if end <= start:
            return
        self._take(block)
        self.reserved -= end - start
        parts = [
            (block.start, start, True),
            (start, end, False),
            (end, block.start + block.size, True),
        ]
        before, after = block.before, block.after
        for first, last, mapped in parts:
            if first == last:
                continue
            part = _Block(block.pool, first, last - first, free=mapped, before=before)
            part.freed_at = block.freed_at
            if before is not None:
                before.after = part
            if mapped:
                self._put(part)
            before = part
        if before is not None:
            before.after = after
        if after is not None:
            after.before = before
        elif before is not None:
            self._ends(before)


def _joined(first: _Block, second: _Block) -> _Block:
    """Two neighbours as one block."""
    first.size += second.size
    first.after = second.after
    if second.after is not None:
        second.after.before = first
    first.free, first.freed_at = True, max(first.freed_at, second.freed_at)
    return first


def simulate(
    events: Iterable[tuple[Hashable, float]], settings: Settings | None = None
) -> Reserved:
    """Memory of a sequence of events: (name, bytes) allocates a tensor, (name, 0) frees it. Raises
    OutOfMemory, and KeyError for a name that is not there."""
    allocator = Allocator(settings)
    values: dict[Hashable, _Block] = {}
    for name, size in events:
        if size > 0:
            assert name not in values, name
            values[name] = allocator.allocate(int(size))
        else:
            allocator.free(values.pop(name))
    return Reserved(allocator.peak, allocator.most, allocator.reserved, allocator.retries)
