# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A device's part in language models, for the member of its fleet; and the head on one of them."""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
import threading
from typing import Any

from torch import Tensor

from intradp_ros.blobs.store import BlobStore
from intradp_ros.cluster.plan_id import PlanError, PlanId
from intradp_ros.core.owned_errors import reason_of
from intradp_ros.runtime.member.role import Computes, Host, Lacking, Plan, Role
from intradp_ros.runtime.weights.state import State
from intradp_ros.split.kernel_device import HOST, KernelDevice
from intradp_ros.systems.language.arithmetic import arithmetic_of, free_bytes
from intradp_ros.systems.language.block_math import LibraryBlocks
from intradp_ros.systems.language.engine import StageEngine
from intradp_ros.systems.language.fused_blocks import make_blocks
from intradp_ros.systems.language.head import Head, HeadPolicy
from intradp_ros.systems.language.import_model import load_tokenizer
from intradp_ros.systems.language.manifest import BlockFile, Manifest, ManifestError, read_manifest
from intradp_ros.systems.language.memory import memory_need
from intradp_ros.systems.language.opened import known_name
from intradp_ros.systems.language.segment_plan import FORMAT, parse_plan, SegmentPlan
from intradp_ros.systems.language.slots import BlockSlot, Loader
from intradp_ros.systems.language.stored import Stored
from intradp_ros.wire.frames import Chunk, Frame, MalformedFrameError


@dataclass(frozen=True, slots=True)
class LanguageOptions:
    """
    What a device gives to language models.

    `memory` are bytes that plans may use, 0 for any; `policy` is that of its requests, where
    it is a head; `names` are what people call models, by digest.  `device` is what computes.
    """

    memory: int = 0
    policy: HeadPolicy = HeadPolicy()
    names: Mapping[str, str] = field(default_factory=dict)
    device: KernelDevice = HOST


@dataclass
class _Model:
    """A model of which this device computes a part."""

    manifest: Manifest
    loader: Loader
    engine: StageEngine
    head: Head | None
    kept: tuple[BlockSlot, ...]  # embedding and head


class LanguageRole(Role):
    """
    Takes plans of segments; blocks are read from a store.

    `headed` is called with the head when this device gets one, and with None when that is gone.
    """

    format = FORMAT  # noqa: A003

    def __init__(self, host: Host, store: BlobStore, options: LanguageOptions = LanguageOptions(),
                 headed: Callable[[Head | None], None] = lambda head: None) -> None:
        self.state = State()
        self._host, self._store, self._options, self._headed = host, store, options, headed
        self._arithmetic = arithmetic_of(options.device)
        self._memory = options.memory or free_bytes(options.device)
        self._plans: dict[PlanId, SegmentPlan] = {}
        self._kept: dict[PlanId, ExitStack] = {}  # blobs of plans make no room for others
        self._models: dict[str, _Model] = {}
        self._lock = threading.Lock()

    @property
    def head(self) -> Head | None:
        """The head on this device, if it has one."""
        return next((model.head for model in self._models.values() if model.head), None)

    @property
    def engine(self) -> StageEngine | None:
        """The engine of this device, if it takes part in a model."""
        return next((model.engine for model in self._models.values()), None)

    def parse(self, data: Any) -> Plan:
        """Return the plan that plain data describe; PlanError if they describe none."""
        return parse_plan(data)

    def lacking(self, plan: Plan) -> Lacking:
        """Return the manifest, and then those blobs of it, that are not here."""
        assert isinstance(plan, SegmentPlan)
        manifest = self._manifest(plan)
        if manifest is None:
            return Lacking({plan.model: None}, frozenset((plan.model,)), plan.model)
        missing = {file.digest: file.nbytes for file in self._files(manifest, plan)
                   if self._store.nbytes(file.digest) is None}
        return Lacking(dict(missing), self._digests(manifest, plan), plan.model)

    def load(self, id: PlanId, plan: Plan) -> None:  # noqa: A002
        """Look whether a plan fits in here, and make ready what computes its model."""
        assert isinstance(plan, SegmentPlan)
        manifest = self._manifest(plan)
        if manifest is None or len(manifest.blocks) != plan.blocks:
            raise PlanError(f'the model {plan.model[:12]} has not {plan.blocks} blocks')
        need = max(memory_need(plan.at(step), self._host.name, manifest,
                               self._options.policy.chunk, arithmetic=self._arithmetic).total
                   for step in range(len(plan.steps) + 1))
        if 0 < self._memory < need:
            raise PlanError(f'{self._host.name} lacks {(need - self._memory) / 1e6:.0f} '
                            f'MB for this plan: {need / 1e6:.0f} MB are needed, '
                            f'{self._memory / 1e6:.0f} MB are allowed')
        model = self._models.get(plan.model)
        if plan.keeps and plan.blocks_of(self._host.name) and (
                model is None or not model.engine.keeps(plan)):
            raise PlanError(f'{self._host.name} has no keys and values {plan.cache[:20]} to keep')
        if model is None or plan.head == self._host.name and model.head is None:
            for other in list(self._models):
                self._drop(other)
            model = self._models[plan.model] = self._made(manifest, plan)
            if model.head:
                self._headed(model.head)
        if model.head:
            model.head.devices(len(plan.slots))
        model.engine.hold(id, plan)
        kept = ExitStack()
        kept.enter_context(self._store.keeping(self._digests(manifest, plan)))
        with self._lock:
            self._plans[id] = plan
            if before := self._kept.pop(id, None):
                before.close()
            self._kept[id] = kept

    def use(self, id: PlanId, boundary: int) -> None:  # noqa: A002
        """Compute with a plan from the next round on."""
        self._models[self._plans[id].model].engine.use(id)
        self._host.release(id)  # what was in flight is computed anew with this plan

    def keep(self, ids: Collection[PlanId]) -> None:
        """Let go of all other plans."""
        with self._lock:
            self._plans = {id_: plan for id_, plan in self._plans.items() if id_ in ids}
            for id_ in self._kept.keys() - self._plans.keys():
                self._kept.pop(id_).close()
        for model in tuple(self._models.values()):
            model.engine.keep(ids)

    def handle(self, peer: str, frame: Frame) -> None:
        """Take hidden states of a plan that is held."""
        id_ = PlanId(frame.session, frame.epoch)
        plan = self._plans.get(id_)
        if not isinstance(frame, Chunk):
            return  # a PING that was answered
        if plan is None:
            raise MalformedFrameError(f'plan {id_} is not held', 'epoch')
        try:
            self._models[plan.model].engine.handle(peer, id_, frame)
        except MalformedFrameError:
            raise
        except Exception as error:  # noqa: B902 - the frame's, not the channel's
            raise MalformedFrameError(reason_of(error), 'frame') from error

    def weight_bytes(self, id_: PlanId) -> int:
        """Return the bytes of weights that a plan reads here in a round; 0 if it is not held."""
        plan = self._plans.get(id_)
        model = self._models.get(plan.model) if plan else None
        if plan is None or model is None:
            return 0
        files = [model.manifest.blocks[block] for block in plan.blocks_of(self._host.name)]
        if model.head:
            files += [model.manifest.embedding, model.manifest.head]
        return sum(file.nbytes for file in files)

    def computes(self) -> Computes:
        """Return what this device computes with, and the bytes that plans may use."""
        return Computes(self._arithmetic, self._memory)

    def busy(self) -> float:
        """Return the seconds of computing so far."""
        return sum(model.engine.meter.computing for model in tuple(self._models.values()))

    def close(self) -> None:
        """Stop all engines, and end requests with a reason."""
        for digest in list(self._models):
            self._drop(digest)
        with self._lock:
            for kept in self._kept.values():
                kept.close()
            self._kept.clear()

    def _files(self, manifest: Manifest, plan: SegmentPlan) -> list[BlockFile]:
        """Return the blobs that this device needs for a plan."""
        files = [manifest.blocks[block] for block in plan.blocks_of(self._host.name)]
        if plan.head == self._host.name:
            files += [manifest.embedding, manifest.head]
            files += [manifest.tokenizer] if manifest.tokenizer else []
        return files

    def _digests(self, manifest: Manifest, plan: SegmentPlan) -> frozenset[str]:
        files = self._files(manifest, plan)
        return frozenset((plan.model, *(file.digest for file in files)))

    def _manifest(self, plan: SegmentPlan) -> Manifest | None:
        text = self._host.blobs.find(plan.model)
        if text is None:
            return None
        try:
            return read_manifest(bytes(text.numpy().data).decode(errors='replace'), plan.model)
        except ManifestError as error:
            raise PlanError(f'model {plan.model[:12]}: {error}') from None

    def _made(self, manifest: Manifest, plan: SegmentPlan) -> _Model:
        blocks = make_blocks(manifest, self._options.device)
        loader = Loader(self._store, self._host.name)
        head: Head | None = None
        kept: tuple[BlockSlot, ...] = ()
        if plan.head == self._host.name:
            name = self._options.names.get(manifest.digest) or known_name(
                self._store, manifest.digest)
            head, kept = make_head(replace(manifest, name=name or manifest.name), blocks,
                                   self._store, self._options.policy)
        engine = StageEngine(self._host.channel, manifest, blocks, loader,
                             lambda why: self._host.reject('engine', why), head)
        return _Model(manifest, loader, engine, head, kept)

    def _drop(self, digest: str) -> None:
        model = self._models.pop(digest)
        if model.head:
            self._headed(None)
            model.head.close()
        model.engine.close()
        model.loader.close()


def read_head(manifest: Manifest, blocks: LibraryBlocks, store: BlobStore,
              ) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor],
                         tuple[BlockSlot, ...]]:
    """
    Return what makes hidden states of token ids, what makes logits of them, and their memory.

    :raises PlanError: if a blob is missing or broken.
    """
    def read(file: BlockFile) -> tuple[BlockSlot, dict[str, Stored]]:
        slot = BlockSlot(store, file.nbytes, blocks.device)
        if not slot.read(store, file, store.slot):
            raise PlanError(f'blob {file.digest[:12]} is missing or broken')
        return slot, slot.views(file)

    (first, embedding), (second, last) = read(manifest.embedding), read(manifest.head)
    return blocks.embedding(embedding), blocks.head(last, embedding), (first, second)


def make_head(manifest: Manifest, blocks: LibraryBlocks, store: BlobStore,
              policy: HeadPolicy) -> tuple[Head, tuple[BlockSlot, ...]]:
    """Return a head, with the memory of its embedding and matrix; PlanError as `read_head`."""
    embed, logits, kept = read_head(manifest, blocks, store)
    tokenizer = None
    if manifest.tokenizer:
        data = store.load(manifest.tokenizer.digest)
        if data is None:
            raise PlanError('the tokenizer is missing or broken')
        tokenizer = load_tokenizer(data)
    return Head(manifest, embed, logits, tokenizer, policy), kept
