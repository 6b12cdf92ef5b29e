# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What planners of several systems share: models to plan for, their costs, and estimates."""
