# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Commands of the laboratory: demos, benchmarks, fleets emulated on this machine."""
