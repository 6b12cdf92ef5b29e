# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Tasks and scenes of training, for the demo and as examples."""
