# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What `intradp view` shows: pure functions from messages, or a demo's folder, to plain blocks."""
