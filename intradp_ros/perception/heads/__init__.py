# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Decoders of outputs, one module for each kind of answer."""
