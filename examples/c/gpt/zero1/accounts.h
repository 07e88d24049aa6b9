/* SPDX-License-Identifier: Apache-2.0 */
/* What a configuration keeps and sends per block parameter, measured on a model made for it, beside the formulas. */
#ifndef GPT_ACCOUNTS_H
#define GPT_ACCOUNTS_H
#include "sharded.h"

/* Prints, on rank 0, a table for the BF16 baseline, drop-in FP8 beside BF16 weights, and FP8 primary weights. Fails
 * where a measured number is not the formula's, up to the alignment of scales. All ranks call it. */
void accounts_print(const Session *session, Parallel *parallel, int32_t preset);
#endif
