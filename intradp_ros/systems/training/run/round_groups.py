# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The connections of one plan: gloo's process groups, never repaired.

A plan's group is made when the plan begins and dropped with it.  Every wait ends: with the
bytes, with an error as soon as a peer's process ends, or at the time-out (a peer that is
stopped, a link that is cut).  `abort()` of a group wakes nobody, so nothing relies on it.
gloo itself neither authenticates nor seals: where there is a key it goes through `tunnels.py`.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
import hmac
import queue
import threading
import time
from typing import Any, Protocol

import torch

from intradp_ros.cluster.plan_id import PlanId


class GroupError(RuntimeError):
    """A plan's group is of no use any more; `peer` is whom this device waited for, if one."""

    def __init__(self, text: str, peer: str = '') -> None:
        super().__init__(text)
        self.peer = peer


def check_distributed() -> None:
    """
    See that this torch can talk to other processes.

    :raises GroupError: if it was built without; some wheels for Jetson are.
    """
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        raise GroupError(f'torch {torch.__version__} was built without torch.distributed and '
                         'gloo, which training over devices needs (some wheels for Jetson are): '
                         'install a wheel that has them, or build torch with USE_DISTRIBUTED=1')


@dataclass
class RoundGroup:
    """
    This device's connections to all of a plan, and to its own replica group.

    `rate` paces what is sent (bytes a second), for emulated devices.
    """

    names: Sequence[str]
    name: str
    whole: Any
    own: Any
    own_names: Sequence[str]
    timeout: float
    rate: float | None = None
    ends: Sequence[Ends] = ()
    _queue: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)
    _sender: threading.Thread | None = None
    _sent: list[Any] = field(default_factory=list)
    carried: int = 0

    def send(self, tensor: torch.Tensor, target: str, tag: int) -> None:
        """Send a tensor when those before it are out; errors come with `settle`."""
        rank, body = self.names.index(target), tensor.contiguous()
        self.carried += body.nbytes
        if not body.numel():
            return
        if self.rate is None:
            self._sent.append((self._try(target, lambda: self._open().send([body], rank, tag)),
                               target, body))
            return
        if self._sender is None:
            self._sender = threading.Thread(target=self._pace, daemon=True)
            self._sender.start()
        done = threading.Event()
        entry: list[Any] = [None, target, body, done]
        self._queue.put((entry, rank, tag))
        self._sent.append(entry)

    def _pace(self) -> None:
        free = 0.0
        while (item := self._queue.get()) is not None:
            entry, rank, tag = item
            free = max(free, time.monotonic()) + entry[2].nbytes / self.rate
            time.sleep(max(0.0, free - time.monotonic()))
            try:
                entry[0] = self._open().send([entry[2]], rank, tag)
            except Exception as error:  # noqa: BLE001 - `settle` raises it
                entry[0] = error
            entry[3].set()

    def receive(self, shape: Sequence[int], dtype: torch.dtype, source: str, tag: int,
                ) -> tuple[torch.Tensor, Any]:
        """Begin to receive; the tensor is there after `wait`."""
        tensor = torch.empty(tuple(shape), dtype=dtype)
        if not tensor.numel():
            return tensor, None
        rank = self.names.index(source)
        return tensor, self._try(source, lambda: self._open().recv([tensor], rank, tag))

    def wait(self, work: Any, peer: str) -> None:
        """
        Wait for what was begun.

        :raises GroupError: if the peer is gone, or the time is over.
        """
        if work is not None:
            self._try(peer, lambda: work.wait(timedelta(seconds=self.timeout)))

    def settle(self) -> None:
        """Wait until all that was sent is out."""
        sent, self._sent = self._sent, []
        for _, target, *rest in sent:
            if len(rest) == 2 and not rest[1].wait(self.timeout):
                raise GroupError(f'nothing could be sent to {target}', target)
        for entry in sent:
            if isinstance(entry[0], Exception):
                raise GroupError(f'{entry[1]}: {entry[0]}', entry[1])
            self.wait(entry[0], entry[1])

    def total(self, tensor: torch.Tensor, replicas: bool = False) -> None:
        """Sum a tensor over all devices, or over those of this stage, in place."""
        group = self.own if replicas else self.whole
        if len(self.own_names if replicas else self.names) > 1 and tensor.numel():
            if self.rate and replicas:
                time.sleep(2 * (len(self.own_names) - 1) / len(self.own_names) * tensor.nbytes
                           / self.rate)
            work = self._try('', lambda: group.allreduce([tensor]))
            self.wait(work, '')

    def _open(self) -> Any:
        """Return the whole group; another thread may have closed it."""
        if self.whole is None:
            raise GroupError('the plan was left')
        return self.whole

    def _try(self, peer: str, begin: Any) -> Any:
        try:
            return begin()
        except RuntimeError as error:
            raise GroupError(f'{peer or "the group"}: {str(error).splitlines()[0]:.200}',
                             peer) from None

    def close(self) -> None:
        """Drop the connections; who waits for this device learns it at once."""
        self._queue.put(None)
        if self._sender is not None:
            self._sender.join(1.0)
        self.own = self.whole = None
        self._sent.clear()
        for ends in self.ends:
            ends.close()


class Ways(Protocol):
    """How a device's groups meet, and where they listen."""

    def ends(self, plan: PlanId, label: str, timeout: float) -> Ends:
        """Return this device's end of a group."""


@dataclass(frozen=True)
class Ends:
    """
    Where gloo listens, the store in which it finds the others, and what ends both.

    `met` is called when all are connected; `proof` returns what one device shows another, None
    where anybody is believed.
    """

    address: str
    store: Any
    close: Callable[[], None] = lambda: None
    met: Callable[[], None] = lambda: None
    proof: Callable[[str, str], bytes] | None = None


def join_group(ways: Ways, plan: PlanId, names: Sequence[str], name: str,
               replicas: Sequence[str], timeout: float, rate: float | None = None,
               purpose: str = 'all') -> RoundGroup:
    """
    Meet the others of a plan.

    A plan may have several groups of different purposes, each for a thread of its own.

    :raises GroupError: if some do not come in time.
    """
    check_distributed()
    if len(names) == 1:  # needs nobody
        return RoundGroup(names, name, None, None, replicas, timeout, rate)
    from torch.distributed import distributed_c10d as c10d
    span, made = timedelta(seconds=timeout), list[Ends]()

    def make(label: str, members: Sequence[str]) -> Any:
        made.append(ends := ways.ends(plan, label, timeout))
        ends.store.set_timeout(span)
        gloo: Any = c10d.ProcessGroupGloo
        options = gloo._Options()
        options._timeout = span
        options._devices = [gloo.create_device(hostname=ends.address)]
        group = gloo(ends.store, members.index(name), len(members), options)
        if ends.proof is not None:
            _prove(group, ends.proof, members, name, span)
        ends.met()
        return group

    try:
        whole = make(purpose, names)
        own = make(f'{purpose} of {replicas[0]}', replicas) if len(replicas) > 1 else None
    except (OSError, RuntimeError) as error:
        for ends in made:
            ends.close()
        raise GroupError(f'the group of plan {plan.term}.{plan.epoch} was not formed: '
                         f'{str(error).splitlines()[0]:.200}') from None
    except GroupError:
        for ends in made:
            ends.close()
        raise
    return RoundGroup(names, name, whole, own, replicas, timeout, rate, made)


def _prove(group: Any, proof: Callable[[str, str], bytes], members: Sequence[str], name: str,
           span: timedelta) -> None:
    """
    See that each connection of a group is with whom gloo takes it to be with.

    gloo takes whoever comes first with a small number: also another user of this machine.
    """
    others = [(rank, other) for rank, other in enumerate(members) if other != name]
    said = [torch.frombuffer(bytearray(proof(name, other)), dtype=torch.uint8)
            for _, other in others]
    heard = [torch.zeros_like(one) for one in said]
    works = [group.recv([one], rank, 0) for one, (rank, _) in zip(heard, others)]
    sent = [group.send([one], rank, 0) for one, (rank, _) in zip(said, others)]
    for work, one, (_, other) in zip(works, heard, others):
        try:
            work.wait(span)
        except RuntimeError:  # who is silent has not proved it either
            one.zero_()
        if not hmac.compare_digest(one.numpy().tobytes(), proof(other, name)):
            raise GroupError(f'who came as {other} did not prove to have our key', other)
    for work in sent:
        work.wait(span)
