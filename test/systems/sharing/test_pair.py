# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Robot and server in one process: exact results whatever happens to server and link."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
import threading
from typing import Any

import pytest
from sharing import (
    assert_equal,
    ENDLESS,
    FixedRate,
    hand_made_book,
    infer_until_shared,
    sharing_pair,
    SHORT,
    TIMEOUT,
    with_kernels,
)
from small_models import Residuals, seeded, UNet
import torch
from torch import nn

from intradp_ros.graph.operator_graph import ParameterRef
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.runtime.requests.outcome import Outcome
from intradp_ros.runtime.transport.channel import LinkReport
from intradp_ros.runtime.transport.memory_channel import memory_pair, MemoryChannel
from intradp_ros.systems.sharing.partition.partition import Partition, RowStage
from intradp_ros.systems.sharing.policy.patience import PatiencePolicy
from intradp_ros.systems.sharing.session.pair import Pair
from intradp_ros.systems.sharing.session.robot import RobotClient
from intradp_ros.systems.sharing.session.server import OffloadServer
from intradp_ros.systems.sharing.strategies import (
    CUT,
    LOCAL,
    OFFLOAD,
    SHARED,
)
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame

pytestmark = pytest.mark.usefixtures('one_thread')

HEIGHT, WIDTH = 48, 64


@pytest.fixture(scope='module')
def network() -> nn.Module:
    return seeded(UNet, HEIGHT, WIDTH)


@pytest.fixture(scope='module')
def model(network: nn.Module) -> SharedModel:
    return share_module(network, (picture(),))


@pytest.fixture(scope='module')
def wanted(network: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return network(picture())


def picture(seed: int = 3) -> torch.Tensor:
    """Return an input."""
    return torch.randn(1, 3, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize('strategy', [LOCAL, OFFLOAD, CUT, SHARED])
def test_every_strategy_is_exact(model: SharedModel, network: nn.Module, strategy: str) -> None:
    """Several inputs; the server takes part in all strategies but local."""
    with sharing_pair(model) as pair:
        for seed in range(3):
            outcome = pair.robot.infer((picture(seed),), strategy=strategy)
            with torch.no_grad():
                assert_equal(outcome.outputs, network(picture(seed)))
            assert outcome.stats.strategy == strategy
            assert outcome.stats.shared == (strategy != LOCAL)
            assert not outcome.stats.recovered
            assert outcome.stats.by_rows == (strategy == SHARED)
            assert (outcome.stats.bytes_up > 0) == (outcome.stats.bytes_down > 0) \
                == (strategy != LOCAL)
        assert pair.robot.rejections.total == pair.server.rejections.total == 0


def test_the_timeline_shows_both_sides(model: SharedModel) -> None:
    """Both sides compute and both directions transfer, within the inference's time."""
    with sharing_pair(model, mbps=40.0) as pair:
        outcome = pair.robot.infer((picture(),))
        events = pair.robot.timeline(outcome, TIMEOUT)
    seen = {(e.lane, e.kind) for e in events}
    assert {('robot', 'compute'), ('server', 'compute'), ('uplink', 'transfer'),
            ('downlink', 'transfer')} <= seen
    for event in events:
        assert event.start <= event.stop
        assert event.start >= -0.05 and event.stop <= outcome.stats.latency + 0.05


def test_outputs_of_any_structure() -> None:
    """A dictionary of a map and a vector, one of which only the server computes."""
    network = seeded(Residuals, HEIGHT, WIDTH)
    model = share_module(network, (picture(),))
    with sharing_pair(model) as pair, torch.no_grad():
        for strategy in (SHARED, OFFLOAD, CUT):
            outcome = pair.robot.infer((picture(5),), strategy=strategy)
            assert outcome.stats.shared
            assert_equal(outcome.outputs, network(picture(5)))


def test_a_batch_of_several_pictures() -> None:
    """As several cameras give one: both sides compute rows of all of them."""
    network = seeded(Residuals, HEIGHT, WIDTH)
    batch = torch.cat([picture(seed) for seed in range(3)])
    model = share_module(network, (batch,))
    with sharing_pair(model) as pair, torch.no_grad():
        outcome = pair.robot.infer((batch,))
        assert outcome.stats.shared and outcome.stats.by_rows
        assert_equal(outcome.outputs, network(batch))


def test_not_a_number_goes_through_as_in_the_unsplit_model(
        model: SharedModel, network: nn.Module) -> None:
    """NaN and infinities spread to the same elements."""
    source = picture()
    source[0, 1, 10, 20] = float('nan')
    source[0, 0, 40, 50] = float('inf')
    with sharing_pair(model) as pair, torch.no_grad():
        outcome = pair.robot.infer((source,))
        assert outcome.stats.shared
        assert_equal(outcome.outputs, network(source))
        assert not outcome.outputs.isfinite().all()


def test_other_inputs_are_refused(model: SharedModel) -> None:
    """The error names the shapes."""
    with sharing_pair(model) as pair, \
            pytest.raises(ValueError, match=r'\(1, 3, 48, 64\).*\(1, 3, 8, 8\)'):
        pair.robot.infer((torch.zeros(1, 3, 8, 8),))


class CutAt:
    """Cuts the link when the robot has received a number of chunks."""

    def __init__(self, pair: Pair) -> None:
        self.pair, self.left = pair, -1
        pair.robot_channel.listen(self)

    def __call__(self, frame: Frame) -> None:
        if isinstance(frame, Chunk) and frame.inference:
            if self.left == 0:
                self.pair.robot_channel.cut()  # type: ignore[attr-defined]
                return
            self.left -= 1
        self.pair.robot.handle(frame)


@pytest.mark.parametrize('strategy', [SHARED, OFFLOAD])
def test_a_link_cut_in_mid_inference(model: SharedModel, wanted: torch.Tensor, strategy: str,
                                     ) -> None:
    """Whatever had arrived, the frame is exact; once restored, inferences are shared again."""
    with sharing_pair(model, patience=SHORT) as pair:
        cut = CutAt(pair)
        for arrived in (0, 1, 2):
            infer_until_shared(pair.robot, (picture(),), wanted, strategy)
            cut.left = arrived
            outcome = pair.robot.infer((picture(),), strategy=strategy)
            if strategy == SHARED or not arrived:
                assert outcome.stats.recovered and 'silent' in outcome.stats.reason
                assert not outcome.stats.shared and not outcome.stats.by_rows
            assert_equal(outcome.outputs, wanted)
            cut.left = -1
            pair.robot_channel.restore()  # type: ignore[attr-defined]
        infer_until_shared(pair.robot, (picture(),), wanted, strategy)


def test_the_deadline_is_honoured(model: SharedModel, wanted: torch.Tensor) -> None:
    """A link that is far too slow for the deadline."""
    patience = PatiencePolicy(silence=TIMEOUT, late_slack=TIMEOUT, deadline=0.1)
    with sharing_pair(model, patience=patience, mbps=0.2) as pair:
        outcome = pair.robot.infer((picture(),), strategy=OFFLOAD)
        assert outcome.stats.recovered and 'deadline' in outcome.stats.reason
        assert_equal(outcome.outputs, wanted)


def test_a_link_that_is_slower_than_predicted(model: SharedModel, wanted: torch.Tensor) -> None:
    """A schedule for 100 Mbit/s on a link of 0.2 Mbit/s is late."""
    patience = PatiencePolicy(silence=TIMEOUT)
    with sharing_pair(model, patience=patience, mbps=0.2) as pair:
        outcome = pair.robot.infer((picture(),))
        assert outcome.stats.recovered and outcome.stats.reason.startswith('late')
        assert_equal(outcome.outputs, wanted)


def connect(robot_model: SharedModel, server_model: SharedModel,
            patience: PatiencePolicy = ENDLESS) -> Pair:
    """Connect two sides whose models need not be the same one."""
    near, far = memory_pair()
    server = OffloadServer(far, {robot_model.digest: server_model}, lambda text: None)
    robot = RobotClient(robot_model, near, FixedRate(100.0), lambda text: None,
                        patience=patience)
    robot.use_book(hand_made_book(robot_model))
    return Pair(robot, server, near, far)


def test_an_exception_in_a_kernel_of_the_server(model: SharedModel, wanted: torch.Tensor) -> None:
    """Its weight has another shape than it should: the robot learns why and goes on."""
    graph = model.split.graph
    name = next(a.name for a in reversed([a for op in graph.operators for a in op.args
                                          if isinstance(a, ParameterRef)])
                if graph.parameters[a.name].dim() == 4)
    bad = {**graph.parameters, name: torch.zeros(1, 99, 3, 3)}
    broken = replace(model, split=replace(model.split, graph=replace(graph, parameters=bad)))
    with connect(model, broken) as pair:
        assert pair.robot.connection.wait_ready(TIMEOUT)
        outcome = pair.robot.infer((picture(),), strategy=OFFLOAD)
        assert outcome.stats.recovered
        assert 'RuntimeError' in outcome.stats.reason and '99' in outcome.stats.reason
        assert_equal(outcome.outputs, wanted)
        assert pair.robot.connection.session in pair.server.sessions


def test_an_exception_in_the_first_inference_only(model: SharedModel, wanted: torch.Tensor,
                                                  ) -> None:
    """As when memory runs out once: the session stays up and later inferences are shared."""
    failures = iter([MemoryError('out of memory')])

    def wrap(kernel: Any) -> Any:
        def run(tensors: Sequence[torch.Tensor]) -> Any:
            for failure in failures:
                raise failure
            return kernel(tensors)
        return run

    with connect(model, with_kernels(model, wrap)) as pair:
        assert pair.robot.connection.wait_ready(TIMEOUT)
        outcome = pair.robot.infer((picture(),))
        assert outcome.stats.recovered and 'out of memory' in outcome.stats.reason
        assert_equal(outcome.outputs, wanted)
        session = pair.robot.connection.session
        infer_until_shared(pair.robot, (picture(),), wanted)
        assert pair.robot.connection.session == session


def test_the_server_stops_working_on_a_cancelled_inference(
        model: SharedModel, wanted: torch.Tensor) -> None:
    """The kernel at hand ends, no other one begins, and nothing is sent."""
    begun, go_on, ran = threading.Event(), threading.Event(), []

    def wrap(kernel: Any) -> Any:
        def run(tensors: Sequence[torch.Tensor]) -> Any:
            ran.append(kernel)
            begun.set()
            assert go_on.wait(TIMEOUT)
            return kernel(tensors)
        return run

    replies: list[Frame] = []
    pongs: list[Frame] = []
    heard = threading.Condition()
    with connect(model, with_kernels(model, wrap)) as pair:
        robot = pair.robot
        assert robot.connection.wait_ready(TIMEOUT)

        def watch(frame: Frame) -> None:
            if frame.inference:
                replies.append(frame)
            elif isinstance(frame, Control) and frame.kind is ControlKind.PONG:
                with heard:
                    pongs.append(frame)
                    heard.notify()
            robot.handle(frame)

        pair.robot_channel.listen(watch)
        first = threading.Thread(target=robot.infer, args=((picture(),),),
                                 kwargs={'strategy': OFFLOAD})
        first.start()
        assert begun.wait(TIMEOUT)
        robot.handle(Control(ControlKind.FAILED, robot.connection.session, inference=1,
                             body={'reason': 'as if'}, server=pair.server.number))
        first.join(TIMEOUT)  # the robot has finished and has sent CANCEL
        pongs.clear()
        with heard:
            assert heard.wait_for(lambda: len(pongs) >= 2, TIMEOUT)  # control frames keep order
        go_on.set()
        infer_until_shared(robot, (picture(),), wanted, OFFLOAD)
    assert not [f for f in replies if f.inference == 1]
    assert len(ran) == 1 + len(model.split.operators)


class Hub:
    """One end that reaches several others, as a topic does; a `Channel`."""

    def __init__(self, ends: Sequence[MemoryChannel]) -> None:
        self.ends = ends
        self.chunk_bytes = ends[0].chunk_bytes
        self._lock = threading.Lock()

    def chunk_bytes_of(self, session: int) -> int:
        return self.chunk_bytes

    def send(self, frame: Frame) -> None:
        for end in self.ends:
            end.send(frame)

    def abandon(self, session: int, inference: int) -> None:
        for end in self.ends:
            end.abandon(session, inference)

    def listen(self, handler: Callable[[Frame], None]) -> None:
        def one_at_a_time(frame: Frame) -> None:
            with self._lock:
                handler(frame)
        for end in self.ends:
            end.listen(one_at_a_time)

    def report(self) -> LinkReport:
        return self.ends[0].report()

    def close(self) -> None:
        for end in self.ends:
            end.close()


def test_two_robots_with_one_server_at_once(model: SharedModel, network: nn.Module) -> None:
    """Their inferences run at the same time, with their own pictures and books."""
    count = len(model.split.operators)
    links = [memory_pair(), memory_pair()]
    server = OffloadServer(Hub([far for _, far in links]), {model.digest: model},
                           lambda text: None)
    robots = [RobotClient(model, near, FixedRate(100.0), lambda text: None, patience=ENDLESS)
              for near, _ in links]
    books = [hand_made_book(model), hand_made_book(model,
                                                   Partition((RowStage(count, 0.3, 1, 4),)))]
    outcomes: list[list[Outcome]] = [[], []]

    def work(which: int) -> None:
        for seed in range(5):
            outcomes[which].append(robots[which].infer((picture(10 * which + seed),)))

    try:
        for robot, book in zip(robots, books):
            robot.use_book(book)
        assert all(robot.connection.wait_ready(TIMEOUT) for robot in robots)
        assert len(server.sessions) == 2
        threads = [threading.Thread(target=work, args=(which,)) for which in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT)
    finally:
        for robot in robots:
            robot.close()
        server.close()
    with torch.no_grad():
        for which in (0, 1):
            assert len(outcomes[which]) == 5
            for seed, outcome in enumerate(outcomes[which]):
                assert outcome.stats.shared
                assert_equal(outcome.outputs, network(picture(10 * which + seed)))
    assert server.rejections.total == 0
    assert [robot.rejections.total for robot in robots] == [0, 0]
    assert all(robot.foreign for robot in robots)
