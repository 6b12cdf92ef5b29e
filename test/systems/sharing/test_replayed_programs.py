# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Programs whose computing between messages a device replays: the same results, and recovery."""
from __future__ import annotations

from collections.abc import Sequence
import threading

import pytest
from replaying_device import replaying
from sharing import assert_equal, ENDLESS, hand_made_book, sharing_pair, SHORT, SOURCE
import torch

from intradp_ros.runtime.execution.fused_program import in_segments, Segment
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.transport.memory_channel import MemoryChannel
from intradp_ros.schedule.program import KernelCall
from intradp_ros.schedule.schedule import SERVER
from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.split.calls.cuda_graphs import GraphedKernel, graphs_on
from intradp_ros.systems.sharing.book.program_cache import ProgramCache
from intradp_ros.systems.sharing.partition.partition import local
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
)

Inputs = Sequence[torch.Tensor]
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason='needs CUDA')


def test_segments_return_what_is_read_after_them(model: SharedModel) -> None:
    """And nothing else; they take up all that is computed between messages."""
    there, device = replaying(model)
    cache = ProgramCache(model, SERVER)
    for entry in hand_made_book(model).entries[1:]:
        program = cache.get(entry.partition).program
        parts = in_segments(program)
        assert sum(isinstance(part, Segment) for part in parts)
        later: set[int] = set()
        for part in reversed(parts):
            whole = part.run if isinstance(part, Segment) else part
            if isinstance(part, Segment):
                assert set(part.results) <= later
                assert not set(part.arguments) & set(part.results)
            if isinstance(whole, KernelCall):
                later |= set(whole.arguments)
            else:
                later |= {c[0] for c in getattr(whole, 'cuts', ())} | {getattr(whole, 'slot', -1)}
    alone = ProgramCache(there, 'robot').get(local(len(model.split.operators))).program
    assert len(alone.instructions) == 1 and len(device.asked) == 1


def test_a_robot_finishes_alone_from_what_segments_returned(
        model: SharedModel, wanted: torch.Tensor) -> None:
    there, device = replaying(model)
    with sharing_pair(there, server=model, patience=SHORT) as pair:
        assert pair.robot.infer((SOURCE,)).stats.shared
        before = device.calls
        assert isinstance(pair.robot_channel, MemoryChannel)
        pair.robot_channel.cut()
        outcome = pair.robot.infer((SOURCE,))
        assert outcome.stats.recovered and device.calls > before
        assert_equal(outcome.outputs, wanted)


@needs_cuda
def test_sessions_replay_cuda_graphs(model: SharedModel, wanted: torch.Tensor) -> None:
    there = model.on(open_device('cuda'))
    program = ProgramCache(there, 'robot').get(local(len(model.split.operators))).program
    [run] = program.instructions
    assert isinstance(run, KernelCall) and isinstance(run.kernel, GraphedKernel)
    with sharing_pair(there, server=there, patience=ENDLESS) as pair:
        for strategy in ('shared', 'offload', 'cut', LOCAL) * 3:
            assert_equal(pair.robot.infer((SOURCE,), strategy=strategy).outputs, wanted)


@needs_cuda
def test_cuda_graphs_take_new_inputs_and_keep_what_they_returned() -> None:
    graphs = graphs_on(torch.zeros(1, device='cuda').device)
    weight = torch.rand(8, 8, 3, 3, device='cuda')

    def layers(tensors: Inputs) -> list[torch.Tensor]:
        x = tensors[0]
        for _ in range(20):
            x = torch.conv2d(x, weight, padding=1).tanh_()
        return [x]

    with torch.inference_mode():
        first, second = (torch.rand(1, 8, 16, 16, device='cuda') for _ in range(2))
        expected = layers([first])[0], layers([second])[0]
        graphed = graphs.faster(layers, [first])
        assert graphed is not None
        got = graphed([first])[0], graphed([second])[0]
        for one, other in zip(got, expected):
            torch.testing.assert_close(one, other)
        wide = torch.rand(1, 8, 16, 32, device='cuda')
        torch.testing.assert_close(graphed([wide])[0], layers([wide])[0])


@needs_cuda
def test_graphs_can_be_made_when_all_others_are_gone() -> None:
    graphs = graphs_on(torch.zeros(1, device='cuda').device)

    def layers(tensors: Inputs) -> list[torch.Tensor]:
        x = tensors[0]
        for _ in range(50):
            x = x.sin() + 1
        return [x]

    with torch.inference_mode():
        x = torch.rand(64, device='cuda')
        for _ in range(3):
            graphed = graphs.faster(layers, [x])
            assert graphed is not None
            torch.testing.assert_close(graphed([x])[0], layers([x])[0])
            del graphed


@needs_cuda
def test_what_the_host_looks_at_is_not_recorded() -> None:
    """And the device works on."""
    graphs = graphs_on(torch.zeros(1, device='cuda').device)
    x = torch.rand(64, device='cuda')

    def chosen(tensors: Inputs) -> list[torch.Tensor]:
        return [tensors[0][tensors[0] > 0.5]]

    with torch.inference_mode():
        expected = chosen([x])[0].cpu()
        assert graphs.faster(chosen, [x]) is None
        assert chosen([x])[0].cpu().equal(expected)
        assert graphs.faster(lambda tensors: [tensors[0] + 1], [torch.rand(8)]) is None  # host's


@needs_cuda
def test_threads_replay_while_others_record(model: SharedModel, wanted: torch.Tensor) -> None:
    """Two sessions infer while books are compiled anew."""
    there, failures, done = model.on(open_device('cuda')), [], threading.Event()

    def infer() -> None:
        try:
            with sharing_pair(there, server=there, patience=ENDLESS) as pair:
                while not done.is_set():
                    for strategy in ('shared', 'offload', LOCAL):
                        outcome = pair.robot.infer((SOURCE,), strategy=strategy)
                        assert_equal(outcome.outputs, wanted)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=infer) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            ProgramCache(there, SERVER).prepare(hand_made_book(model))
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failures
