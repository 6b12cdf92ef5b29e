# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Many robots' requests, answered in time by several edge sites, or refused at once (EPARA).

`site_kernels` are pure functions over the arrays of one site (`site_arrays`); the live `gateway`
and the simulator call the same ones, through `site_functions`.
"""
