# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A fleet's plan for a training: who takes part in which one, and who gives the orders.

Who holds which layers in which rounds is a plan of its own (`training_plan.py`), of which there
are many in a session; the trainer gives them as orders, in lines between it and each device.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
import ipaddress
import itertools
from typing import Any

from intradp_ros.cluster.plan_id import PlanError
from intradp_ros.runtime.member.line_way import MAX_NUMBER
from intradp_ros.systems.training.layers.task_facts import MOST_FACTS, MOST_NAME, MOST_TEXT
from intradp_ros.systems.training.plan.training_plan import (
    MOST_SECONDS,
    read_number,
    read_text,
)

FORMAT = 'training/2'
MOST_DEVICES, MOST_TASK = 256, 1024


@dataclass(frozen=True)
class TrainingSession:
    """
    A training and its devices.

    Attributes
    ----------
    training
        Number of the training; that of a new one is drawn.  A coordinator that takes over goes
        on with it, so that what devices hold of it counts.
    task, facts
        Name of the task, one of those that each device lists, and what must be the same in all
        of them (`task_facts.py`).
    seats
        The devices, each with the number of its stream of lines with the trainer.  One that was
        away gets another number: what it or the trainer said before is of the past.
    coordinator
        Whose orders are taken.
    host, port
        Where workers fetch and bring weights, as IP address and TCP port.
    timeout, every
        Longest wait of a device for another (s), and rounds between snapshots.
    paused
        Whether nothing is to be computed, so that one that takes over does not go on either.

    """

    training: int
    task: str
    facts: Mapping[str, str]
    seats: Mapping[str, int]
    coordinator: str
    host: str
    port: int
    timeout: float
    every: int
    paused: bool = False

    @property
    def participants(self) -> tuple[str, ...]:
        """Return the devices that take part."""
        return tuple(self.seats)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {'format': FORMAT, **asdict(self)}


def parse_session(data: Any) -> TrainingSession:
    """
    Return the session that plain data describe; nothing in them is trusted.

    :raises PlanError: if they describe none.
    """
    try:
        seats = data['seats']
        if data['format'] != FORMAT or not 1 <= len(seats) <= MOST_DEVICES:
            raise PlanError(f'a session of format {FORMAT} has 1 to {MOST_DEVICES} devices')
        return TrainingSession(
            read_number(data['training'], most=MAX_NUMBER - 1),
            read_text(data['task'], MOST_TASK), _facts(data['facts']),
            {read_text(name): read_number(seat, most=MAX_NUMBER - 1)
             for name, seat in itertools.islice(seats.items(), MOST_DEVICES)},
            read_text(data['coordinator']),
            str(ipaddress.ip_address(read_text(data['host'], 64))),
            read_number(data['port'], 1, (1 << 16) - 1), _seconds(data['timeout']),
            read_number(data['every'], 1, (1 << 20) - 1), data['paused'] is True)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PlanError(f'a session of training cannot be read: {error!r:.200}') from None


def _facts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > MOST_FACTS or not all(
            isinstance(text, str) and len(name) <= MOST_NAME and len(text) <= MOST_TEXT
            for name, text in value.items()):
        raise PlanError('facts of a task that are not a short table of short texts')
    return value


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value <= MOST_SECONDS:
        raise PlanError(f'a wait lasts up to {MOST_SECONDS:g} s, not {value!r:.40}')
    return float(value)
