# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A random model of 4 layers against one process: ``python bench/language_matrix.py``.

Grouped queries, tied and untied heads; 1 to 4 devices, resident and streaming; prompts of each
length up to the context; plans switched and layers moved in the middle; a device killed at
each token of the answer.  Tokens must be equal and logits within 1e-4.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
import hashlib
import importlib
import json
from pathlib import Path
import sys
import tempfile
import time
from typing import Any

import torch

from intradp_lab.language.reference import whole_answer
from intradp_ros.blobs.store import BlobStore
from intradp_ros.systems.language.local_fleet import Answering, LocalLanguage
from intradp_ros.systems.language.manifest import Manifest

sys.path.append(str(Path(__file__).resolve().parents[1] / 'test'))  # small random models

small = importlib.import_module('language_models')

#: Tokens of an answer; most seconds that one may take.
COUNT, PATIENCE = 12, 60.0
NAMES = 'abcd'
During = Callable[[LocalLanguage, Answering], None]


@dataclass
class Compared:
    """A model, and how its answers compare with those of one process."""

    manifest: Manifest
    store: BlobStore
    whole: Any
    answers: int = 0
    difference: float = 0.0
    ids: Any = field(default_factory=hashlib.sha256)
    _known: dict[int, Any] = field(default_factory=dict)

    def fleet(self, devices: int, streamed: bool) -> LocalLanguage:
        """Return devices of this process with a plan."""
        given = small.costs(self.manifest, devices)
        fleet = LocalLanguage(given, NAMES[0], small.Scripted(given, 1 + streamed, streamed),
                              {NAMES[0]: self.store}, times=small.QUICK)
        fleet.wait_ready()
        return fleet

    def check(self, fleet: LocalLanguage, length: int, during: During | None = None) -> None:
        """Compare the answer to a prompt of a length."""
        most = min(COUNT, self.manifest.context - length)
        prompt = torch.randint(0, 97, (length,), generator=torch.Generator().manual_seed(
            length)).tolist()
        if length not in self._known:
            self._known[length] = whole_answer(self.whole, prompt, most, frozenset())
        tokens, wanted = self._known[length]
        got: list[torch.Tensor] = []
        answering = fleet.ask(prompt, most, got)
        if during:
            during(fleet, answering)
        end = answering.wait(PATIENCE)
        assert answering.tokens == tokens, (length, end)
        self.difference = max(self.difference,
                              float(torch.stack(got).sub(wanted).abs().max()))
        assert self.difference < 1e-4
        self.ids.update(json.dumps(tokens).encode())
        self.answers += 1


def changed(devices: int, segments: int, keeps: bool, tokens: int) -> During:
    """Return what puts another plan in force after some tokens, with or without the cache."""
    def change(fleet: LocalLanguage, answering: Answering) -> None:
        _after(answering, tokens)
        plan = small.even_plan(fleet.costs, NAMES[:devices], segments, segments > 1)
        fleet.coordinator.propose(replace(plan, cache='moved', keeps=keeps))
    return change


def killed(name: str, tokens: int) -> During:
    """Return what kills a device after some tokens."""
    def kill(fleet: LocalLanguage, answering: Answering) -> None:
        _after(answering, tokens)
        fleet.kill(name)
    return kill


def _after(answering: Answering, tokens: int) -> None:
    while len(answering.tokens) < tokens and answering.ended is None:
        time.sleep(0.0005)


def compare(model: Compared) -> None:
    """Run all situations."""
    for devices in (1, 2, 3, 4):
        for streamed in (False, True):
            with model.fleet(devices, streamed) as fleet:
                for length in range(1, model.manifest.context):
                    model.check(fleet, length)
                for length in range(1, 80, 13):
                    for segments, keeps in ((2, False), (1, False), (1, True), (2, True)):
                        model.check(fleet, length,
                                    changed(devices, segments, keeps, 1 + length % 9))
            for token in range(COUNT) if devices > 1 else ():
                with model.fleet(devices, streamed) as fleet:
                    model.check(fleet, 1 + 17 * token % 80,
                                killed(NAMES[1 + token % (devices - 1)], token))
                    model.check(fleet, 7)
            print(f'{devices} devices, {"streaming" if streamed else "resident"}: '
                  f'{model.answers} answers, {model.difference:.1e}', flush=True)


def main() -> None:
    """Compare both models."""
    torch.set_num_threads(1)
    for tied in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            model = Compared(*small.tiny_model(Path(folder), tied=tied))
            compare(model)
            print(json.dumps({'tied': tied, 'answers': model.answers, 'logits':
                              model.difference, 'sha256': model.ids.hexdigest()[:16]}))


if __name__ == '__main__':
    main()
