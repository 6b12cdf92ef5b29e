// Copyright 2026 The intradp_ros developers
// SPDX-License-Identifier: Apache-2.0

#include "lanes_avx512.h"
#include "kernels_of_lanes.h"

const Kernels * avx512_kernels()
{
  static const Kernels found = KERNELS("avx512");
  return &found;
}
