# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Language models on emulated devices: processes, demo and figures."""
