/* SPDX-License-Identifier: Apache-2.0 */
#include "network.h"

#include "../common/random.h"
#include "../common/recipes.h"

static const int64_t widths[LAYERS + 1] = {PIXELS, WIDTH, WIDTH, CLASSES};

static fp8_recipe *create_recipe(int32_t preset, enum Fault fault) {
  fp8_recipe_config config;
  fp8_recipe *recipe;
  FP8_INIT(&config);
  CHECK(fp8_recipe_config_preset(preset, &config));
  fault_recipe(fault, &config);
  CHECK(fp8_recipe_create(&config, &recipe));
  return recipe;
}

void network_create(Network *net, const fp8_context *context, fp8_stream stream, const Kernels *kernels, int32_t preset,
                    enum Fault fault, int64_t rows, uint64_t seed) {
  memset(net, 0, sizeof *net);
  net->context = context;
  net->kernels = kernels;
  net->fault = fault;
  net->rows = rows;
  memory_open(&net->memory, context, stream);
  int64_t offsets[LAYERS][2];
  for (int l = 0; l < LAYERS; ++l) { /* each at a multiple of 64 elements of the flat buffers */
    offsets[l][0] = net->size;
    net->size += (widths[l] * widths[l + 1] + 63) / 64 * 64;
    offsets[l][1] = net->size;
    net->size += (widths[l + 1] + 63) / 64 * 64;
  }
  uint64_t bytes = (uint64_t)net->size * sizeof(float), workspace = 0;
  net->master = memory_alloc(&net->memory, bytes);
  net->grad = memory_alloc(&net->memory, bytes);
  net->m = memory_alloc(&net->memory, bytes);
  net->v = memory_alloc(&net->memory, bytes);

  for (int l = 0; l < LAYERS; ++l) {
    int last = l == LAYERS - 1;
    net->recipes[l] = last ? preset_create(FP8_PRESET_NONE) : create_recipe(preset, fault);
    fp8_linear_config config;
    FP8_INIT(&config);
    config.in_features = widths[l];
    config.out_features = widths[l + 1];
    config.recipe = net->recipes[l];
    CHECK(fp8_linear_create(context, &config, &net->plans[l]));
    CHECK(fp8_linear_workspace(net->plans[l], rows, 0, &bytes));
    workspace = bytes > workspace ? bytes : workspace;

    Layer *layer = &net->layers[l];
    layer->plan = net->plans[l];
    layer->in = widths[l];
    layer->out = widths[l + 1];
    layer->rows = rows;
    layer->weight = net->master + offsets[l][0];
    layer->dweight = net->grad + offsets[l][0];
    layer->bias = net->master + offsets[l][1];
    layer->dbias = net->grad + offsets[l][1];
    if (fault == FAULT_DY_E4M3_TENSOR && !last) layer->amax_dy = memory_alloc(&net->memory, sizeof(float));
    layer->misread = fault == FAULT_WGRAD_AXIS && !last;
    layer_create(layer, &net->memory);
    float *initial = calloc((size_t)(widths[l] * widths[l + 1]), sizeof *initial);
    REQUIRE(initial, "out of memory");
    for (int64_t i = 0; i < widths[l] * widths[l + 1]; ++i)
      initial[i] = random_normal(seed, (uint64_t)(offsets[l][0] + i)) * sqrtf(2.0f / (float)widths[l]);
    memory_write(&net->memory, layer->weight, initial, (uint64_t)(widths[l] * widths[l + 1]) * sizeof *initial);
    free(initial);
  }
  for (int l = 0; l <= LAYERS; ++l) {
    net->activations[l] = memory_alloc(&net->memory, (uint64_t)(rows * widths[l]) * sizeof(bf16));
    net->gradients[l] = memory_alloc(&net->memory, (uint64_t)(rows * widths[l]) * sizeof(bf16));
  }
  net->workspace = memory_buffer(&net->memory, workspace + 1);
  net->labels = memory_alloc(&net->memory, (uint64_t)rows);
  net->losses = memory_alloc(&net->memory, (uint64_t)rows * sizeof(float));
  net->host_pixels = calloc((size_t)rows, PIXELS * sizeof(bf16));
  net->host_logits = calloc((size_t)rows, CLASSES * sizeof(bf16));
  net->host_labels = calloc((size_t)rows, 1);
  net->host_losses = calloc((size_t)rows, sizeof(float));
  REQUIRE(net->host_pixels && net->host_logits && net->host_labels && net->host_losses, "out of memory");
}

static LayerCall layer_call(const Network *net, int l) {
  LayerCall call = {net->context, net->recipes[l], net->memory.stream, &net->workspace, 0, net->frozen};
  return call;
}

static void quantize_weights(Network *net) {
  for (int l = 0; l < LAYERS; ++l) {
    LayerCall call = layer_call(net, l);
    layer_quantize_weight(&call, &net->layers[l]);
  }
}

static void forward(Network *net, int training) {
  for (int l = 0; l < LAYERS; ++l) {
    LayerCall call = layer_call(net, l);
    bf16 *y = net->activations[l + 1];
    layer_forward(&call, &net->layers[l], net->activations[l], y, training);
    if (l + 1 < LAYERS) net->kernels->relu(net->memory.stream, net->rows * widths[l + 1], y);
  }
}

static void update(Network *net, float rate, float loss_scale) { /* Adam */
  double step = (double)++net->step;
  rate *= (float)(sqrt(1.0 - pow(0.999, step)) / (1.0 - pow(0.9, step)));
  AdamArgs args = {net->master, net->grad, net->m, net->v, net->size, rate, 1.0f / loss_scale};
  net->kernels->adam(net->memory.stream, &args);
}

double network_train(Network *net, const Images *images, const int64_t *chosen, float rate) {
  const Memory *memory = &net->memory;
  int64_t rows = net->rows;
  for (int64_t i = 0; i < rows; ++i) {
    memcpy(net->host_pixels + i * PIXELS, images->pixels + chosen[i] * PIXELS, PIXELS * sizeof(bf16));
    net->host_labels[i] = images->labels[chosen[i]];
  }
  memory_write(memory, net->activations[0], net->host_pixels, (uint64_t)(rows * PIXELS) * sizeof(bf16));
  memory_write(memory, net->labels, net->host_labels, (uint64_t)rows);
  float loss_scale = fault_loss_scale(net->frozen ? net->fault : FAULT_NONE);
  quantize_weights(net);
  forward(net, 1);
  net->kernels->loss(memory->stream, rows, net->activations[LAYERS], net->labels, loss_scale / (float)rows, net->losses,
                     net->gradients[LAYERS]);
  for (int l = LAYERS; l-- > 0;) {
    LayerCall call = layer_call(net, l);
    bf16 *dx = l ? net->gradients[l] : NULL; /* pictures need no gradient */
    layer_backward(&call, &net->layers[l], NULL, net->gradients[l + 1], dx);
    if (dx) net->kernels->relu_backward(memory->stream, rows * widths[l], net->activations[l], dx);
  }
  update(net, rate, loss_scale);
  net->frozen = net->fault == FAULT_DY_E4M3_TENSOR;
  memory_read(memory, net->host_losses, net->losses, (uint64_t)rows * sizeof(float));
  double sum = 0.0;
  for (int64_t i = 0; i < rows; ++i) sum += net->host_losses[i];
  return sum / (double)rows;
}

double network_accuracy(Network *net, const Images *images) {
  int64_t right = 0;
  quantize_weights(net);
  for (int64_t first = 0; first < images->count; first += net->rows) {
    int64_t rows = images->count - first < net->rows ? images->count - first : net->rows; /* of the last batch: fewer */
    memory_write(&net->memory, net->activations[0], images->pixels + first * PIXELS,
                 (uint64_t)(rows * PIXELS) * sizeof(bf16));
    forward(net, 0);
    memory_read(&net->memory, net->host_logits, net->activations[LAYERS], (uint64_t)(rows * CLASSES) * sizeof(bf16));
    for (int64_t i = 0; i < rows; ++i) {
      int best = 0;
      const bf16 *logits = net->host_logits + i * CLASSES;
      for (int c = 1; c < CLASSES; ++c) best = bf16_to_float(logits[c]) > bf16_to_float(logits[best]) ? c : best;
      right += best == images->labels[first + i];
    }
  }
  return (double)right / (double)images->count;
}

void network_destroy(Network *net) {
  for (int l = 0; l < LAYERS; ++l) {
    fp8_linear_destroy(net->plans[l]);
    fp8_recipe_destroy(net->recipes[l]);
  }
  memory_close(&net->memory);
  free(net->host_pixels);
  free(net->host_logits);
  free(net->host_labels);
  free(net->host_losses);
}
