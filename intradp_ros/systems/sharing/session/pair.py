# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Robot and server in one process over an in-memory link: tests, and a first try without ROS."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from intradp_ros.link.predictor import RatePredictor
from intradp_ros.power.power_states import PowerStates, XAVIER_NX
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.transport.channel import Channel
from intradp_ros.runtime.transport.memory_channel import memory_pair
from intradp_ros.systems.sharing.book.latency_calibration import LatencyCalibration
from intradp_ros.systems.sharing.policy.patience import PatiencePolicy
from intradp_ros.systems.sharing.session.robot import RobotClient
from intradp_ros.systems.sharing.session.server import OffloadServer


@dataclass(frozen=True)
class Pair:
    """The two sides of an in-process pair, with the channels between them."""

    robot: RobotClient
    server: OffloadServer
    robot_channel: Channel
    server_channel: Channel

    def __enter__(self) -> Pair:
        """Use as a context that closes both sides."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Close both sides."""
        self.robot.close()
        self.server.close()


def in_process_pair(model: SharedModel, predictor: RatePredictor, *,
                    server_model: SharedModel | None = None, mbps: float | None = None,
                    delay: float = 0.0, patience: PatiencePolicy = PatiencePolicy(),
                    power: PowerStates = XAVIER_NX, lossy: str = '',
                    experience: LatencyCalibration | None = None,
                    log: Callable[[str], None] = lambda text: None) -> Pair:
    """
    Connect a robot and a server in this process.

    :param model, predictor: the model both sides have; how the robot predicts the rate.
    :param server_model: the same model as the server has it, if that is on another device.
    :param mbps, delay: rate each way in Mbit/s (None: as fast as memory) and one-way delay in
        seconds of the link between them.
    :param patience, log: when the robot goes on alone; where both sides write what happens.
    :param power: the robot's power states.
    :param lossy: a lossy encoding that the robot allows books to use.
    :param experience: what the robot learns from its inferences, as the nodes do (None: nothing).
    """
    rate = None if mbps is None else mbps * 125e3
    robot_channel, server_channel = memory_pair(rate=rate, delay=delay)
    server = OffloadServer(server_channel, {model.digest: server_model or model}, log)
    robot = RobotClient(model, robot_channel, predictor, log, patience=patience, power=power,
                        lossy=lossy, experience=experience)
    return Pair(robot, server, robot_channel, server_channel)
