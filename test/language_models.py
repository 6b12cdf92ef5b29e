# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Small language models with random weights, in blobs, and fleets of this process for them."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
import math
from pathlib import Path
from typing import Any

import torch

from intradp_ros.blobs.store import BlobStore
from intradp_ros.cluster.coordinator import CoordinatorTimes
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.membership import MemberTimes
from intradp_ros.cluster.topology import behind_access_point, Medium, Topology
from intradp_ros.runtime.member.planner import Planner, Proposal
from intradp_ros.runtime.member.role import Plan
from intradp_ros.systems.language.costs import LanguageCosts
from intradp_ros.systems.language.expert_files import stack_experts
from intradp_ros.systems.language.families import FAMILIES, library
from intradp_ros.systems.language.import_model import store_model
from intradp_ros.systems.language.local_fleet import LocalLanguage
from intradp_ros.systems.language.manifest import Manifest
from intradp_ros.systems.language.planner import build, Choice, Share
from intradp_ros.systems.language.segment_plan import FORMAT, SegmentPlan
from intradp_ros.systems.language.stored import OF_DTYPE

#: For tests of losses: who is silent for a moment is gone.
QUICK = CoordinatorTimes(MemberTimes(0.1, 0.3, 0.6, 0.2), rest=0.2)
#: For others: nobody is taken for gone, however busy the machine is; plans are made at once.
STEADY = CoordinatorTimes(MemberTimes(0.02, 60.0, 120.0, 0.02), rest=0.02)
NAMES = 'abcd'
SHAPE = {'hidden_size': 32, 'intermediate_size': 48, 'num_hidden_layers': 4,
         'num_attention_heads': 4, 'num_key_value_heads': 2, 'vocab_size': 97,
         'max_position_embeddings': 96, 'head_dim': 8, 'eos_token_id': None,
         'bos_token_id': None, 'pad_token_id': None}
MIXTURE = {'num_local_experts': 8, 'num_experts_per_tok': 3, 'moe_intermediate_size': 24}

#: What configurations of some families must say.
NEEDED: dict[str, dict[str, Any]] = {
    'cwm': {'bos_token_id': 1},
    'granitemoehybrid': {'num_local_experts': 0, 'layer_types': ['attention'] * 4,
                         'shared_intermediate_size': 48, 'position_embedding_type': 'rope',
                         'mamba_n_heads': 8}}


def tiny_model(folder: Path, family: str = 'llama', *, tied: bool = True, seed: int = 0,
               dtype: torch.dtype = torch.float32, loud: float = 1.0, **shape: Any,
               ) -> tuple[Manifest, BlobStore, Any]:
    """
    Return a random model: its manifest, its blobs, and the whole of it.

    Its embeddings are so many times as `loud` as usual: what layers add matters less.
    """
    transformers = library()
    torch.manual_seed(seed)
    given = {**SHAPE, 'tie_word_embeddings': tied,
             **(MIXTURE if FAMILIES[family].experts else {}), **NEEDED.get(family, {}), **shape}
    config = transformers.AutoConfig.for_model(family, **given)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 0.3 if 'norm' in name else 1.2 / math.sqrt(parameter.shape[-1])
            scale *= loud if 'embed' in name else 1.0
            parameter.copy_(torch.randn(parameter.shape) * scale
                            + ('norm' in name and not family.startswith('gemma')))
    store = BlobStore(folder, 1 << 40)
    weights = model.state_dict()
    tensors, find = stack_experts({name: (OF_DTYPE[tensor.dtype], tuple(tensor.shape)) for
                                   name, tensor in weights.items()}, weights.__getitem__)
    manifest = store_model(family, {**config.to_diff_dict(), **given, 'model_type': family},
                           find, tuple(tensors), store.put, None, None)
    return manifest, store, model


def costs(manifest: Manifest, count: int, *, memory: float = math.inf, disk: float = 1e9,
          mbit: float = 1e4, tokens: int = 512) -> LanguageCosts:
    """Return costs of some devices that are alike."""
    plain = [Device(name) for name in NAMES[:count]]
    joined = behind_access_point(plain, mbit * 125e3) if count > 1 else \
        Topology(tuple(plain), (), {})
    devices = tuple(replace(d, disk=f'disk {d.name}', memory_bytes=memory) for d in plain)
    media = joined.media + tuple(Medium(f'disk {d.name}', disk) for d in plain)
    return LanguageCosts(manifest, Topology(devices, media, joined.paths), 1e-4, 2e-4, 3e-4,
                         5e-4, tokens=tokens, lane=32)


def even_plan(given: LanguageCosts, names: Sequence[str], segments: int = 1,
              streamed: bool = False, head: str = 'a') -> SegmentPlan:
    """Return a plan that divides the layers evenly; of a streamed one each reads what it can."""
    layers, count = given.manifest.layers, len(names)
    shares = {}
    for k, name in enumerate(names):
        own = (k + 1) * layers // count - k * layers // count
        turn = streamed and segments > 1 and own > 1
        shares[name] = Share(own, own // 2 if turn and own > 3 else 0, own if turn else 0)
    return build(given, head, Choice(0.0, segments, {n: s for n, s in shares.items() if s.layers}))


def checked(plan: Plan | None) -> SegmentPlan:
    """Return a plan, which is one of language."""
    assert isinstance(plan, SegmentPlan)
    return plan


def plan_of(fleet: LocalLanguage) -> SegmentPlan:
    """Return the plan in use."""
    return checked(fleet.coordinator.plan)


class Scripted(Planner):
    """Makes even plans for who is there; the head must be."""

    format = FORMAT  # noqa: A003

    def __init__(self, given: LanguageCosts, segments: int, streamed: bool) -> None:
        self.given, self.segments, self.streamed = given, segments, streamed

    def plan(self, alive: frozenset[str], now: float) -> Proposal | None:
        """Return it."""
        if 'a' not in alive:
            return None
        return Proposal(even_plan(self.given, sorted(alive), self.segments, self.streamed))
