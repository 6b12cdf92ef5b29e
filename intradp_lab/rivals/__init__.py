# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What other systems do, on the same cost model: schedule tables of robots need none of it."""
