# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What decides at a site, without clock, chance or I/O.

Plain Python on arrays and numbers that numba compiles as it stands.
"""
