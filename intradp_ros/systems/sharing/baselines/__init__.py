# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What others do, on the same cost model and judged by the same simulator."""
