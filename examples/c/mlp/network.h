/* SPDX-License-Identifier: Apache-2.0 */
/* 784 -> 256 -> 256 -> 10 with ReLU. The first two linears run in the recipe, the last one in BF16, as is the habit. */
#ifndef MLP_NETWORK_H
#define MLP_NETWORK_H
#include "../common/layer.h"
#include "images.h"
#include "kernels.h"

enum { LAYERS = 3, WIDTH = 256 };

typedef struct Network {
  Memory memory;
  const fp8_context *context;
  const Kernels *kernels; /* of the context's device */
  fp8_recipe *recipes[LAYERS];
  fp8_linear *plans[LAYERS];
  Layer layers[LAYERS];
  fp8_buffer workspace;
  float *master, *grad, *m, *v; /* flat */
  int64_t size, step, rows;
  bf16 *activations[LAYERS + 1], *gradients[LAYERS + 1]; /* of the layers' inputs and of the last one's output */
  uint8_t *labels;
  float *losses;
  bf16 *host_pixels, *host_logits; /* of one batch, as labels and losses below */
  uint8_t *host_labels;
  float *host_losses;
  enum Fault fault;
  int frozen;
} Network;

void network_create(Network *net, const fp8_context *context, fp8_stream stream, const Kernels *kernels, int32_t preset,
                    enum Fault fault, int64_t rows, uint64_t seed);
/* Mean loss of the `rows` given pictures, after which their parameters are updated. */
double network_train(Network *net, const Images *images, const int64_t *chosen, float rate);
double network_accuracy(Network *net, const Images *images);
void network_destroy(Network *net);
#endif
