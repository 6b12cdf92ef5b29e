# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Simple schedules and placements, on the same cost model and judged by the same simulator."""
