# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The device that asks, as a process: ``python -m intradp_lab.fleet.asker '{"fleet": ...}'``.

A line ``asking`` on standard output says that the fleet has a plan.  Each
answer is compared with the unsplit model's, in units of its spread.
"""
from __future__ import annotations

from collections.abc import Sequence
import json
from pathlib import Path
import signal
import sys
import threading
import time

import torch
from torch.utils import _pytree as pytree

from intradp_lab.fleet.asking import Asking, save_answers, SeenAnswer
from intradp_lab.fleet.device_emulation import emulated_at, read_profile
from intradp_lab.fleet.fleet_scene import video_inputs
from intradp_ros.cluster.plan_id import NO_PLAN
from intradp_ros.core.patience import Patience
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.dds.dds_peers import DdsPeers
from intradp_ros.dds.standalone import standalone_context
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.trees import rebuild_outputs
from intradp_ros.profiling.machine import prepare_process, settle_process
from intradp_ros.runtime.member.fleet_member import FleetMember
from intradp_ros.runtime.member.role import Host
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.pipeline.fleet_patience import FleetPatience
from intradp_ros.runtime.pipeline.fleet_result import FleetResult
from intradp_ros.runtime.pipeline.pipeline_client import PipelineClient
from intradp_ros.runtime.pipeline.stage_role import StageRole
from intradp_ros.runtime.weights.exchange import WeightPolicy
from intradp_ros.split.checks.verify import output_error

#: Different inputs, asked for in turn.
INPUTS = 5
#: Seconds between two looks at whether patience is over.
_LOOK = 0.5


class Asker:
    """Asks through a client, and keeps what the answers were like."""

    def __init__(self, asking: Asking, model: SharedModel, real: SharedModel) -> None:
        self.asking, self.model = asking, model
        self.inputs = _inputs(real, asking.video)
        self.wanted = [] if asking.profile else [_unsplit(real, x) for x in self.inputs]
        self.asked: dict[int, float] = {}
        self.seen: list[SeenAnswer] = []
        self.stopping = threading.Event()
        self._changed = threading.Condition()

    def answered(self, answer: FleetResult) -> None:
        """Compare and keep an answer."""
        difference = 0.0
        if self.wanted and answer.outputs is not None:
            difference = _difference(answer.outputs, self.wanted[answer.inference % INPUTS])
        with self._changed:
            self.seen.append(SeenAnswer(
                answer.inference, self.asked[answer.inference], answer.latency,
                answer.pipelined, answer.outputs is not None, answer.reason, answer.plan.epoch,
                difference))
            self._changed.notify()

    def ask_all(self, client: PipelineClient) -> None:
        """Ask as ordered, and wait for all answers."""
        asking, begin, number = self.asking, time.monotonic(), 0
        since = begin
        while number < asking.frames and not self.stopping.is_set():
            number += 1
            self._wait_for_room(client, since + (number - 1 - asking.alone) * asking.interval)
            with self._changed:  # the answer may come before the number is known
                now = time.monotonic()
                self.asked[client.ask(self.inputs[number % INPUTS])] = now - begin
            if number <= asking.alone:
                self._wait_for(number)
                since = time.monotonic() + asking.interval
        self._wait_for(number)

    def _wait_for(self, number: int) -> None:
        patience = Patience(self.asking.patience)
        with self._changed:
            while not self._changed.wait_for(lambda: len(self.seen) >= number, _LOOK):
                if not patience.over:
                    continue
                raise SystemExit(f'{number - len(self.seen)} of {number} answers did not come')

    def _wait_for_room(self, client: PipelineClient, due: float) -> None:
        if self.asking.interval:
            self.stopping.wait(max(0.0, due - time.monotonic()))
            return
        while client.counts()['waiting']:
            time.sleep(1e-3)


def _inputs(model: SharedModel, video: bool) -> list[tuple[torch.Tensor, ...]]:
    values = [model.split.graph.values[v] for v in model.split.graph.inputs]
    if video:
        return video_inputs(INPUTS, values[0].shape[-1])
    return [tuple(ModelSpec('', v.shape, v.dtype).example(seed) for v in values)
            for seed in range(INPUTS)]


def _unsplit(model: SharedModel, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    graph = model.split.captured
    with torch.inference_mode():
        return _tensors(rebuild_outputs(graph, run_graph(graph, inputs)))


def _tensors(outputs: object) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]


def _difference(outputs: object, wanted: Sequence[torch.Tensor]) -> float:
    """Return the largest difference in units of each output's spread; infinite for a NaN."""
    return max(output_error('', got, want).relative
               for got, want in zip(_tensors(outputs), wanted, strict=True))


def main() -> None:
    """Run the command line."""
    asking = Asking(**json.loads(sys.argv[1]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    prepare_process(1)
    real = ModelSpec.parse(asking.model).load()
    model = emulated_at(real, read_profile(asking.profile), asking.speed) \
        if asking.profile else real
    asker = Asker(asking, model, real)
    signal.signal(signal.SIGUSR1, lambda *_: asker.stopping.set())
    settle_process()
    with standalone_context() as context:
        key = SharedKey.load(Path(asking.key_file)) if asking.key_file else None
        channel = DdsPeers(context, asking.fleet, asking.name, key=key)
        models, clients = {model.digest: model}, []

        def stages(host: Host) -> StageRole:
            role = StageRole(host, models)
            clients.append(role.ask(
                model, asker.answered, inflight=asking.inflight, waiting=1 << 16,
                patience=FleetPatience(silence=asking.silence)))
            return role

        device = FleetMember(
            channel, (stages,), lambda text: print(text, flush=True), models=models,
            coordinators=asking.coordinators, weights=WeightPolicy(serves=asking.serves))
        (client,) = clients
        try:
            _wait_for_plan(client, asking.patience)
            print('asking', flush=True)
            asker.ask_all(client)
        finally:
            device.close()
            channel.close()
    save_answers(asker.seen, Path(asking.output))
    print('done', flush=True)


def _wait_for_plan(client: PipelineClient, patience: float) -> None:
    left = Patience(patience)
    while client.plan == NO_PLAN or client.unavailable_reason():
        if left.over:
            raise SystemExit(f'no plan within {patience:g} s: {client.unavailable_reason()}')
        time.sleep(0.01)


if __name__ == '__main__':
    main()
