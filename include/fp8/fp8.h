/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  The whole of libfp8's public API. */
#ifndef FP8_FP8_H
#define FP8_FP8_H
#include "collectives.h"
#include "comm.h"
#include "context.h"
#include "dlpack.h"
#include "export.h"
#include "fp8/version.h" /* made by the build */
#include "gemm.h"
#include "linear.h"
#include "param.h"
#include "quantize.h"
#include "recipe.h"
#include "status.h"
#include "types.h"
#endif
