# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Blobs, each named by the SHA-256 of its bytes: kept on disk, and fetched from peers."""
