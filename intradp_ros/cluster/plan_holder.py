# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Changing plans, the device's side: what it holds, and from when on it uses what.

A plan is prepared in the background while another is in use, and used when
it is committed, from a boundary on; what is in flight ends with the plan that
it began with.  Orders of a lower term than one heard of are refused.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from intradp_ros.cluster.fleet_messages import (
    Abort,
    Commit,
    Committed,
    Order,
    Prepare,
    Ready,
    Refused,
    Reply,
)
from intradp_ros.cluster.plan_id import NO_PLAN, PlanId


@dataclass(frozen=True)
class PlanHolder:
    """
    What a device knows of plans.

    `newest` is the highest that it was ordered to prepare: what comes late of
    others is ignored.  `held` are those that it could run, `loading` those that it prepares;
    frames before `boundary` are of plan `previous`, the others of
    `committed`.
    """

    device: str
    term: int = 0
    held: Mapping[PlanId, Any] = field(default_factory=dict)
    loading: Mapping[PlanId, Any] = field(default_factory=dict)
    committed: PlanId = NO_PLAN
    previous: PlanId = NO_PLAN
    boundary: int = 0
    newest: PlanId = NO_PLAN

    def plan(self, id: PlanId) -> Any:  # noqa: A002
        """Return a plan to work by; None where it is not held: that is reported."""
        return self.held.get(id)


@dataclass(frozen=True, slots=True)
class Load:
    """Prepare a plan in the background, then call `loaded`, or `failed`."""

    id: PlanId  # noqa: A003
    plan: Any


Result = tuple[PlanHolder, Reply | Load | None]


def on_order(holder: PlanHolder, order: Order) -> Result:
    """Take an order; return the answer, or what to load."""
    if order.id.term < holder.term:
        return holder, _refuse(holder, order.id, 'a higher term has begun')
    holder = replace(holder, term=order.id.term)
    if isinstance(order, Prepare):
        return _prepare(holder, order)
    if isinstance(order, Commit):
        return _commit(holder, order)
    return _abort(holder, order)


def heard_term(holder: PlanHolder, term: int) -> PlanHolder:
    """Learn of a term: orders of lower ones are refused from now on."""
    return replace(holder, term=max(holder.term, term))


def loaded(holder: PlanHolder, id: PlanId) -> Result:  # noqa: A002
    """Say that a plan is prepared; None where it was aborted meanwhile."""
    if id not in holder.loading:
        return holder, None
    plan = holder.loading[id]
    return (replace(holder, held={**holder.held, id: plan}, loading=_but(holder.loading, id)),
            Ready(holder.device, id))


def failed(holder: PlanHolder, id: PlanId, reason: str) -> Result:  # noqa: A002
    """Say that a plan could not be prepared."""
    if id not in holder.loading:
        return holder, None
    return (replace(holder, loading=_but(holder.loading, id)),
            replace(_refuse(holder, id, reason), unable=True))


def release_previous(holder: PlanHolder) -> PlanHolder:
    """Let go of the plan before the one in use: nothing of it is in flight any more."""
    return replace(holder, held=_but(holder.held, holder.previous), previous=NO_PLAN)


def _prepare(holder: PlanHolder, order: Prepare) -> Result:
    if order.id in holder.held:
        return holder, Ready(holder.device, order.id)
    if order.id in holder.loading:
        return holder, None
    if order.id <= holder.committed:
        return holder, _refuse(holder, order.id, 'a newer plan is in use')
    if order.id < holder.newest:
        return holder, None
    # Of what was prepared the newest stays, as its COMMIT may be on its way.
    kept = {key: plan for key, plan in holder.held.items()
            if key in (holder.committed, holder.previous, holder.newest)}
    return (replace(holder, held=kept, loading={order.id: order.plan}, newest=order.id),
            Load(order.id, order.plan))


def _commit(holder: PlanHolder, order: Commit) -> Result:
    if order.id == holder.committed:
        return holder, Committed(holder.device, order.id)
    if order.id < holder.committed:
        return holder, _refuse(holder, order.id, 'a newer plan is in use')
    if order.id not in holder.held:
        return holder, _refuse(holder, order.id, 'it was not prepared')
    kept = {key: plan for key, plan in holder.held.items()
            if key in (order.id, holder.committed)}
    return (replace(holder, held=kept, committed=order.id, previous=holder.committed,
                    boundary=order.boundary), Committed(holder.device, order.id))


def _abort(holder: PlanHolder, order: Abort) -> Result:
    if order.id in (holder.committed, holder.previous):
        return holder, None
    return replace(holder, held=_but(holder.held, order.id),
                   loading=_but(holder.loading, order.id)), None


def _refuse(holder: PlanHolder, id: PlanId, reason: str) -> Refused:  # noqa: A002
    return Refused(holder.device, id, reason, holder.term)


def _but(plans: Mapping[PlanId, Any], id: PlanId) -> dict[PlanId, Any]:  # noqa: A002
    return {key: plan for key, plan in plans.items() if key != id}
