/* SPDX-License-Identifier: Apache-2.0 */
/* Planted faults: a comparison that cannot fail shows nothing, so these must come out of the same table as failures. */
#ifndef EXAMPLE_FAULTS_H
#define EXAMPLE_FAULTS_H
#include "check.h"

enum Fault { FAULT_NONE, FAULT_WGRAD_AXIS, FAULT_DY_E4M3_TENSOR, FAULT_FLOOR_OUTLIERS, FAULT_COUNT };

enum Fault fault_parse(const char *name); /* FAULT_NONE = no such name */
const char *fault_name(enum Fault fault);
int32_t fault_preset(enum Fault fault); /* the recipe that it is planted into */
void fault_recipe(enum Fault fault, fp8_recipe_config *config);
float fault_loss_scale(enum Fault fault);
#define FAULT_OUTLIER 16.0f /* factor on one channel in 32 of the norms' outputs, where outliers are asked for */

/* Makes the column side as a careless program would: row codes transposed, row scales as they lie. The scales then run
 * along the wrong axis, and every element meets a foreign one. */
void fault_misread(const fp8_context *context, fp8_qtensor *q, fp8_stream stream);
#endif
