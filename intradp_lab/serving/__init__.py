# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Sites and robots on one machine: real gateways, models and sockets."""
