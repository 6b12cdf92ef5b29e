// Copyright 2026 The intradp_ros developers
// SPDX-License-Identifier: Apache-2.0

#include "lanes_avx2.h"
#include "kernels_of_lanes.h"

const Kernels * avx2_kernels()
{
  static const Kernels found = KERNELS("avx2");
  return &found;
}
