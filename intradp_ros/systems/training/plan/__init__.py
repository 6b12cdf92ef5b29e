# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Who trains what: planners, estimates, actions."""
