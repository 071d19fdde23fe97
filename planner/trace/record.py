"""One training step of a module on fake tensors, operator by operator.

Where an operator belongs to is known forward by the modules that are running, and backward by the
label of the autograd node that runs it. Sizes come from tensors: nothing is computed.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from planner.trace import classes, routes
from planner.trace.classes import ATTENTION, BATCHED, CONVOLUTION, FUSABLE, GEMM, Call
from planner.trace.divide import (
    INPUT,
    NO_SOURCE,
    STREAM,
    TOKENS,
    WHOLE,
    Division,
    Multiplication,
    Seen,
    Sources,
)
from planner.trace.regions import COUNTED_BYTES, OUTSIDE, Chain, Region, Storage
from planner.trace.values import DEVICE, device_of, tensors_of

_LABEL = "dpplan"
_NUMBERS = (torch.bool, torch.uint8, torch.int32, torch.int64)  # indices and masks: in no gradient
Forward = tuple[int, int]  # a chain forward: its region, and its place there


class Recorder(TorchDispatchMode):
    """Counts what modules do. blocks: paths of those that are regions of their own."""

    def __init__(self, model: nn.Module, blocks: set[str], compute: torch.dtype) -> None:
        super().__init__()
        self.model, self.blocks, self.compute = model, blocks, compute
        self.paths = {id(module): path for path, module in model.named_modules()}
        self.stack: list[str] = []
        self.regions: list[Region] = [Region(OUTSIDE, "")]
        self.at = self.rest = 0  # region now, and the last one outside of blocks
        self.block_at: dict[str, int] = {}
        self.storages: dict[int, Storage] = {}
        self.chain, self.chained_in = 0, (-1, False)
        self.chains: dict[int, Chain] = {}
        self.weights: dict[int, str] = {}
        self.owner: dict[str, int] = {}  # region of a parameter
        for name, weight in model.named_parameters():
            self.weights.setdefault(weight.untyped_storage()._cdata, name)
        self.hidden: set[int] = set()  # storages of inputs of the current block
        self.mask: dict[str, Any] = {}  # words of the next attention
        self.backwards = False
        self.kept: list[Storage] = []
        self.turn = 0  # the last chain forward
        self.division = Division()
        self.seen: list[Seen] = []
        # sources of what a call writes, and whether it is copies of tokens, by its identity
        self.made_of: dict[int, tuple[Sources, bool]] = {}
        self.alive: list[Any] = []  # memory of tensors, lest another one comes to lie there
        self.choices: set[tuple[int, int]] = set()  # regions with routers, and their experts

    # ------------------------------------------------------------------------------- modules

    def entered(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A module begins."""
        path = self.paths.get(id(module), "")
        self.stack.append(path)
        if path in self.blocks:
            tensors = [x for x in tree_iter((args, kwargs)) if isinstance(x, torch.Tensor)]
            self._label(tensors)
            if path not in self.block_at:
                self.block_at[path] = len(self.regions)
                self.regions.append(Region(path, type(module).__name__))
                floats = [x for x in tensors if x.is_floating_point()]
                self.regions[-1].enters = floats[0].numel() if floats else 0
            self.at, self.rest = self.block_at[path], -1
            self._begins_with(next((x for x in tensors if x.is_floating_point()), None))
            self.hidden = {x.untyped_storage()._cdata for x in tensors[:1]}

    def _begins_with(self, x: torch.Tensor | None) -> None:
        """The first input of a block is the stream, be it what the model is given."""
        if x is not None:
            key = x.untyped_storage()._cdata
            storage = Storage(-1, -1, self._bytes(x), x.dtype == self.compute)
            if not self.storages.setdefault(key, storage).sources:
                self.storages[key].sources = frozenset([STREAM])

    def left(self, module: nn.Module, args: Any, output: Any) -> None:
        """A module ends."""
        path = self.stack.pop()
        if path in self.blocks:
            tensors = [x for x in tree_iter(output) if isinstance(x, torch.Tensor)]
            self._label(tensors)
            self.regions[self.at].leaves = tensors[0].numel() if tensors else 0
            self.at, self.hidden = -1, set()

    def _region(self) -> int:
        """Index of the region that runs."""
        if self.at < 0:  # after a block: what comes is outside again
            if self.rest < 0:
                self.rest = len(self.regions)
                self.regions.append(Region(OUTSIDE, ""))
            self.at = self.rest
        return self.at

    def _label(self, tensors: list[torch.Tensor]) -> None:
        """Autograd nodes behind tensors belong to the running region, unless they have one."""
        todo: list[Any] = [x.grad_fn for x in tensors if x.grad_fn is not None]
        region = None
        while todo:
            node = todo.pop()
            if node is None or _LABEL in node.metadata:
                continue
            region = self._region() if region is None else region
            node.metadata[_LABEL] = region
            todo += [each for each, _ in node.next_functions]

    # ----------------------------------------------------------------------------- operators

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No guard against torch.compile around every operator, which nothing here runs."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is DEVICE:
            return device_of(args[0])
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        inputs, outputs = tensors_of(args, kwargs), tensors_of(result)
        if not outputs:
            return result
        before = {x.untyped_storage()._cdata for x in inputs}
        writes = name.endswith("_") or any(
            arg.alias_info is not None and arg.alias_info.is_write for arg in func._schema.arguments
        )
        fresh = [x for x in outputs if x.untyped_storage()._cdata not in before]
        node = torch._C._current_autograd_node() if self.backwards else None
        backward = self.backwards
        labels: Any = {} if node is None else node.metadata
        region = self._region() if node is None else labels.get(_LABEL, self.regions_last)
        kind, given = self._kind(region, name, args), routes.arguments(func, args, kwargs)
        self._acts_along(region, name, given, inputs, outputs)
        if not fresh and not writes:
            return result  # a view
        if kind not in FUSABLE or self.chained_in != (region, backward):
            self.chain += 1
            self.chained_in = (region, backward) if kind in FUSABLE else (-1, False)
            if kind in FUSABLE:
                self.chains[self.chain] = Chain(region, backward)
        sources = self._sources(region, name, kind, args, inputs)
        known = [(x, self._storage(x)) for x in inputs]
        reads = [(self._source(region, x), tuple(x.shape)) for x in inputs]
        read, written = self._moved(region, inputs, fresh or outputs, bool(kind), sources)
        copied = self._routed(region, name, kind, given, known, fresh or outputs)
        if name == "_to_copy" and (weight := self._weight(args)):  # autocast: a weight in 16 bit
            self.weights[outputs[0].untyped_storage()._cdata] = weight
            return result  # counted by the stack, with all weights
        again = (classes.passes(name) - 1) * read
        if kind in FUSABLE:
            self.chains[self.chain].again += again
        if not kind:
            return result
        call = Call(name, self.stack[-1] if self.stack and not backward else "", kind, backward)
        self._sized(call, name, args, outputs)
        call.numbers["bytes"] = read + again + written
        if again:
            call.numbers["again"] = again
        call.numbers["made"] = sum(x.numel() for x in (fresh or outputs))
        self.regions[region].calls.append(call)
        self.made_of[id(call)] = sources, copied
        self.seen += [Seen(region, call, reads, call.numbers["made"])] * (not backward)
        return result

    # ------------------------------------------------------------------------ what ranks share

    def _source(self, region: int, x: torch.Tensor) -> Sources:
        """Sources of a tensor, as a region reads it: results of other regions come from the
        stream."""
        storage = self.storages.get(x.untyped_storage()._cdata)
        if storage is None or not storage.sources:
            return NO_SOURCE
        return storage.sources if storage.region == region else frozenset([STREAM])

    def _kind(self, region: int, name: str, args: Any) -> str:
        """Class of an operator. A product of all tokens with a weight for each expert of the
        block's router is a GEMM of experts."""
        of_experts = (
            name == "bmm"
            and not self.backwards
            and (region, args[1].shape[0]) in self.choices
            and self._weight(args[1:2])
        )
        return GEMM if of_experts else classes.kind_of(name)

    def _sources(
        self, region: int, name: str, kind: str, args: Any, inputs: list[torch.Tensor]
    ) -> Sources:
        """Sources of what an operator writes. A GEMM with a weight is a source of its own."""
        read = NO_SOURCE.union(*(self._source(region, x) for x in inputs))
        if kind != GEMM and name not in ("embedding", "convolution"):
            return read
        weight = self._weight(args)
        if self.backwards:  # of weights: no activation
            return self.division.gradient_of_input(weight, region) if weight else NO_SOURCE
        if not weight:
            return read
        if name in ("embedding", "convolution") or not self.regions[region].name:
            return frozenset([STREAM])
        sizes = classes.gemm_sizes(name, args)
        at = len(self.division.multiplications)
        self.division.multiplications.append(Multiplication(region, weight, sizes["n"], read))
        left = args[1] if name == "addmm" else args[0]
        if (storage := self.storages.get(left.untyped_storage()._cdata)) is not None:
            storage.read_by.add(at)
        return frozenset([at])

    def _acts_along(
        self,
        region: int,
        name: str,
        given: dict[str, Any],
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
    ) -> None:
        """Notes along how many elements an operator of activations acts. Gathers by a
        router's choice are noted elsewhere, and operators outside of blocks, except scans."""
        inside = self.regions[region].name or not self.blocks or name in routes.SCANS
        if self.backwards or not inside:
            return
        read = [x for x in inputs if x.is_floating_point() and self._source(region, x)]
        if not read or any(self._storage(x).chosen for x in routes.by_index(name, given)):
            return
        if (size := routes.along(name, given, read[0], outputs[0])) > 1:
            module = self.stack[-1] if self.stack else ""
            sizes = routes.pieces(name, given, read[0]) or (size,)
            self.regions[region].along.append((name, module, sizes))

    def _routed(
        self,
        region: int,
        name: str,
        kind: str,
        given: dict[str, Any],
        known: list[tuple[torch.Tensor, Storage]],
        outputs: list[torch.Tensor],
    ) -> bool:
        """Marks outputs that follow from a router's choice, or are copies of tokens; returns
        whether any is copies. known: inputs, and their memory."""
        chosen, rows = routes.routed(name, given, known, outputs)
        if experts := routes.chooses(name, known):
            self.choices.add((region, experts))
        if name == "bmm" and kind == GEMM:
            rows = known[0][1].copies = math.prod(outputs[0].shape[:2])
        for x in outputs:
            storage = self._storage(x)
            counts = not x.is_floating_point()
            storage.chosen = chosen and counts
            if rows and (counts or storage.sources) and routes.leads(x, rows):
                storage.copies = rows
        return any(self._storage(x).copies for x in outputs)

    def _storage(self, x: torch.Tensor) -> Storage:
        """Memory of a tensor, and how it came about."""
        key = x.untyped_storage()._cdata
        return self.storages.get(key) or Storage(-1, -1, 0)

    def divide(self) -> None:
        """After the forward pass: the GEMMs that ranks share, the blocks whose operators do not
        allow it, and shares of what is saved."""
        division, whole = self.division, set[int]()
        named = {i for i, region in enumerate(self.regions) if region.name}
        division.decide(named)
        for each in self.seen:
            if each.region not in whole and (
                why := division.refused(each, self.regions[each.region].name)
            ):
                whole.add(each.region)
                self.regions[each.region].undivided = why
        if whole:
            self.division = Division(division.multiplications)
            self.division.decide(named - whole)
        for storage in self.kept:
            self._share(storage, "saved")

    def _ranks(self, storage: Storage, region: int) -> str:
        """How ranks have a tensor that a region reads or keeps."""
        if storage.copies and storage.region == region:
            return self.division.copies(storage.sources)
        if not self.division.rows:
            return WHOLE
        ranks = self.division.ranks(storage.sources)
        if storage.region != region and storage.sources:  # of another block: the stream
            ranks = TOKENS
        return INPUT if ranks == TOKENS and storage.read_by & self.division.columns else ranks

    def _share(self, storage: Storage, name: str) -> None:
        """A saved tensor in the shares of the region that keeps it."""
        ranks, region = self._ranks(storage, storage.saved_in), self.regions[storage.saved_in]
        if storage.compute:
            region.add(ranks, name, storage.size // COUNTED_BYTES)
        else:
            region.add(ranks, f"{name}_bytes", storage.size)

    @property
    def regions_last(self) -> int:
        return len(self.regions) - 1

    def _sized(self, call: Call, name: str, args: Any, outputs: list[torch.Tensor]) -> None:
        """Numbers of a product, a convolution or attention."""
        if call.kind == GEMM:
            call.numbers |= classes.gemm_sizes(name, args)
            call.words["weight"] = self._weight(args)
            left = self.storages.get(args[name == "addmm"].untyped_storage()._cdata)
            call.words["routed"] = left is not None and left.copies == call.numbers["m"]
            if name == "addmm":
                call.words["bias"] = self._weight(args[:1])
        elif name == "embedding":
            call.words["weight"] = self._weight(args[:1])
        elif call.kind == BATCHED:
            call.numbers |= classes.batched_sizes(name, args)
            call.words["weight"] = self._weight(args)
        elif call.kind == CONVOLUTION:
            call.words["weight"] = self._weight(args)
            if name == "convolution":
                call.numbers |= classes.convolution_sizes(args, outputs[0])
            else:
                call.words["input_gradient"] = classes.has_input_gradient(args)
        elif call.kind == ATTENTION and not name.endswith("backward"):
            call.numbers |= classes.attention_sizes(args)
            causal = classes.is_causal(name, args)
            call.words |= {"mask": "causal" if causal else "full", "window": None, **self.mask}
            self.mask = {}

    def _weight(self, args: Any) -> str:
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        names = (self.weights.get(x.untyped_storage()._cdata, "") for x in reversed(tensors))
        return next((name for name in names if name), "")

    def _moved(
        self,
        region: int,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        kernel: bool,
        sources: Sources,
    ) -> tuple[int, int]:
        """Bytes read and written, as if elements of the compute precision had 16 bit."""
        read = written = 0
        chain = self.chains.get(self.chain)
        for x in inputs if kernel else ():
            key, size = x.untyped_storage()._cdata, self._bytes(x)
            read += size
            name = self.weights.get(key)
            if name is not None and name not in self.owner and not self.backwards:
                self.owner[name] = region
            storage = self.storages.setdefault(
                key, Storage(region, -1, size, x.dtype == self.compute)
            )
            storage.readers.add(self.chain)
            if chain is not None and storage.chain != self.chain:
                chain.entering[id(storage)] = storage
        for x in outputs:
            size = self._bytes(x)
            written += size * kernel
            storage = Storage(region, self.chain, size * kernel, x.dtype == self.compute)
            self.alive.append(x.untyped_storage())
            storage.sources = NO_SOURCE if x.dtype in _NUMBERS else sources
            self.storages[x.untyped_storage()._cdata] = storage
            if chain is not None:
                chain.made.append(storage)
        return read, written

    def _bytes(self, x: torch.Tensor) -> int:
        apart = math.prod(n for n, step in zip(x.shape, x.stride(), strict=True) if step)
        elements = min(apart, x.untyped_storage().nbytes() // x.element_size())
        return elements * (COUNTED_BYTES if x.dtype == self.compute else x.element_size())

    def pack(self, x: torch.Tensor) -> torch.Tensor:
        """Autograd saves a tensor: bytes of its whole memory, counted once."""
        key = x.untyped_storage()._cdata
        if key in self.weights:
            return x
        region = self._region()
        storage = self.storages.setdefault(
            key, Storage(region, -1, self._bytes(x), x.dtype == self.compute)
        )
        if storage.saved:
            return x
        storage.saved = True
        self.kept.append(storage)
        # what several blocks read stays where it was made: positions, a mask, an encoder's output
        outside = self.regions[region].name == OUTSIDE
        at = region if key in self.hidden or outside else storage.region
        storage.saved_in = at
        storage.size = x.untyped_storage().nbytes()
        if x.dtype == self.compute:
            storage.size = x.untyped_storage().nbytes() // x.element_size() * COUNTED_BYTES
            self.regions[at].saved += storage.size // COUNTED_BYTES
        else:
            self.regions[at].saved_bytes += storage.size
        return x

    def fused(self, again: set[Forward] | None = None) -> set[Forward]:
        """Bytes of every chain as one kernel: what comes from outside, and what is read outside of
        it or saved. Where the inputs of a chain are less than its saved values, the inputs are
        saved in their place, and the chain runs again in backward, as torch's partitioner decides
        (torch/_functorch/partitioners.py).

        again: chains that run again, as another size decided; returns those that do.
        """
        decided, seen = set[Forward](), Counter[int]()
        for at, chain in self.chains.items():
            if chain.backward:
                continue
            place = chain.region, seen[chain.region]
            seen[chain.region] += 1
            if self._made_again(at, chain, None if again is None else place in again):
                decided.add(place)
        for storage in self.kept:
            if storage.again is None:
                region = self.regions[storage.saved_in]
                self._share(storage, "fused_saved")
                if storage.compute:
                    region.fused_saved += storage.size // COUNTED_BYTES
                else:
                    region.fused_saved_bytes += storage.size
        for at, chain in self.chains.items():
            for ranks, moved in sorted(self._moved_by_chain(at, chain).items()):
                words = {"ranks": ranks}
                call = Call("fused", "", "fused", chain.backward, {"bytes": moved}, words)
                self.regions[chain.region].calls.append(call)
        self._label_calls()
        return decided

    def _moved_by_chain(self, at: int, chain: Chain) -> Counter[str]:
        """Bytes that a chain reads and writes as one kernel, by how ranks have the tensors."""
        leaving = [
            each
            for each in chain.made
            if (each.saved and each.again is None)
            or not each.readers
            or any(reader != at and self._reads(each, reader) for reader in each.readers)
        ]
        entering: dict[int, Storage] = {}
        for each in chain.entering.values():
            sources = [each] if each.again is None or not chain.backward else each.again
            entering |= {id(source): source for source in sources}
        moved = Counter[str]()
        for each in (*entering.values(), *leaving):
            moved[self._moved_by(each, chain.region)] += each.size
        first = [self._moved_by(each, chain.region) for each in chain.made[:1]]
        moved[first[0] if first else WHOLE] += chain.again
        return moved

    def _label_calls(self) -> None:
        """How ranks have the tensors of every call, by what it writes."""
        for region in self.regions:
            for call in region.calls:
                sources, copied = self.made_of.get(id(call), (NO_SOURCE, False))
                if copied:
                    call.words["ranks"] = self.division.copies(sources)
                elif id(call) in self.made_of and self.division.rows:
                    call.words["ranks"] = self.division.ranks(sources)

    def _moved_by(self, storage: Storage, region: int) -> str:
        ranks = self._ranks(storage, region)
        return TOKENS if ranks == INPUT else ranks

    def _made_again(self, at: int, chain: Chain, decided: bool | None) -> bool:
        inside = [
            each
            for each in chain.made
            if each.saved and not any(at < reader <= self.turn for reader in each.readers)
        ]
        needed = [each for each in chain.entering.values() if each.chain >= 0]
        more = [each for each in needed if not each.saved]
        less = sum(each.size for each in more) < sum(each.size for each in inside)
        if not (less if decided is None else decided):
            return False
        for each in inside:
            each.again = needed
        for each in more:
            each.saved, each.saved_in = True, chain.region
            self.kept.append(each)
        return True

    def _reads(self, storage: Storage, reader: int) -> bool:
        """Whether a chain reads a tensor that is not made again for it."""
        return storage.again is None or reader <= self.turn
