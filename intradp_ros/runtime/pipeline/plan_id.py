# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The number of a plan, by its name in this room; it is defined beside members and plan switch."""
from __future__ import annotations

from intradp_ros.cluster.plan_id import NO_PLAN, PlanId

__all__ = ['NO_PLAN', 'PlanId']
