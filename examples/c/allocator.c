/* SPDX-License-Identifier: Apache-2.0 */
/* Bring your own allocator, and then need none: with workspaces of the asked size a call allocates nothing, and
 * FP8_CONTEXT_NO_ALLOC makes that a promise that is checked. */
#include <string.h>

#include "common/check.h"
#include "common/option.h"
#include "common/recipes.h"
#include "common/tensor.h"

enum { TOKENS = 64, IN = 256, OUT = 128 };

typedef struct Arena { /* a framework's pool would stand here: sized, stream-ordered, one per context */
  uint64_t live, peak, calls;
} Arena;

static void *arena_alloc(void *user, uint64_t bytes, uint64_t align, int32_t space, fp8_stream stream) {
  Arena *arena = user;
  void *memory = NULL;
  (void)space; /* host and device are one on the CPU */
  (void)stream;
  if (posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : (size_t)align, (size_t)bytes)) return NULL;
  arena->calls += 1;
  arena->live += bytes;
  arena->peak = arena->live > arena->peak ? arena->live : arena->peak;
  return memory;
}

static void arena_free(void *user, void *memory, uint64_t bytes, int32_t space, fp8_stream stream) {
  (void)space;
  (void)stream;
  ((Arena *)user)->live -= bytes; /* the size comes back, so an allocator needs no table of its own */
  free(memory);
}

static bf16 x[TOKENS * IN], y[TOKENS * OUT];
static float w[OUT * IN];

/* One inference through a linear in a context that has these flags. Returns how often a call had to allocate. */
static uint64_t run(Arena *arena, uint32_t flags, int with_workspace) {
  fp8_allocator allocator;
  FP8_INIT(&allocator);
  allocator.user = arena;
  allocator.alloc = arena_alloc;
  allocator.free = arena_free;
  fp8_context_config config;
  fp8_context *context;
  FP8_INIT(&config);
  config.backend = FP8_BACKEND_CPU; /* the arena, x, y and w are host memory, which a CUDA context cannot take */
  config.allocator = &allocator;
  config.flags = flags;
  CHECK(fp8_context_create(&config, &context));

  fp8_recipe *recipe = preset_create(FP8_PRESET_TENSOR);
  fp8_linear_config linear_config;
  fp8_linear *linear;
  FP8_INIT(&linear_config);
  linear_config.in_features = IN;
  linear_config.out_features = OUT;
  linear_config.recipe = recipe;
  CHECK(fp8_linear_create(context, &linear_config, &linear));
  CHECK(fp8_linear_prepare(linear, TOKENS, FP8_FPROP)); /* plans and lazy modules now, not in a step */

  /* fp8_buffer_alloc goes through the same allocator, and is allowed under NO_ALLOC: the caller asks for it. */
  fp8_qtensor qw;
  fp8_buffer home, workspace = {NULL, 0};
  uint64_t bytes;
  FP8_INIT(&qw);
  CHECK(fp8_linear_describe(linear, FP8_ROLE_WEIGHT, 0, FP8_SIDE_BOTH, &qw));
  CHECK(fp8_qtensor_bytes(&qw, FP8_SIDE_BOTH, &bytes));
  CHECK(fp8_buffer_alloc(context, bytes, &home, NULL));
  CHECK(fp8_qtensor_place(&qw, FP8_SIDE_BOTH, &home));
  CHECK(fp8_linear_workspace(linear, TOKENS, 0, &bytes));
  if (with_workspace) CHECK(fp8_buffer_alloc(context, bytes, &workspace, NULL));

  fp8_tensor tx = matrix(x, FP8_DTYPE_BF16, TOKENS, IN), ty = matrix(y, FP8_DTYPE_BF16, TOKENS, OUT);
  fp8_tensor tw = matrix(w, FP8_DTYPE_F32, OUT, IN);
  fp8_quantize_args quantize;
  FP8_INIT(&quantize);
  quantize.x = &tw;
  quantize.q = &qw;
  quantize.role = FP8_ROLE_WEIGHT;
  quantize.workspace = with_workspace ? &workspace : NULL;
  fp8_linear_forward_args forward;
  FP8_INIT(&forward);
  forward.x = &tx;
  forward.w = &qw;
  forward.y = &ty;
  forward.workspace = with_workspace ? &workspace : NULL;
  fp8_status status = fp8_quantize(context, recipe, &quantize, NULL);
  if (status == FP8_OK) status = fp8_linear_forward(linear, &forward, NULL);
  if (flags & FP8_CONTEXT_NO_ALLOC && !with_workspace) {
    fp8_error error;
    FP8_INIT(&error);
    fp8_last_error(&error);
    REQUIRE(status == FP8_ERR_NO_ALLOC, "a call without a workspace should have been refused");
    printf("NO_ALLOC, no workspace:   refused: %s\n", error.message);
  } else {
    CHECK(status);
  }

  fp8_counters counters;
  FP8_INIT(&counters);
  CHECK(fp8_context_counters(context, &counters));
  if (with_workspace) fp8_buffer_free(context, &workspace, NULL);
  fp8_buffer_free(context, &home, NULL);
  fp8_linear_destroy(linear);
  fp8_recipe_destroy(recipe);
  fp8_context_destroy(context);
  REQUIRE(arena->live == 0, "%llu bytes were not given back", (unsigned long long)arena->live);
  return counters.allocations;
}

int main(int count, char **arguments) {
  option_none(count, arguments,
              "allocator: an allocator of the caller, then workspaces, so that a call allocates nothing");
  for (int i = 0; i < TOKENS * IN; ++i) x[i] = bf16_from_float((float)(i % 17) - 8.0f);
  for (int i = 0; i < OUT * IN; ++i) w[i] = (float)(i % 13) / 13.0f;
  Arena arena;
  memset(&arena, 0, sizeof arena);
  uint64_t inside = run(&arena, 0, 0);
  printf("no workspace:             %llu allocations inside calls, %llu bytes at the peak\n",
         (unsigned long long)inside, (unsigned long long)arena.peak);
  REQUIRE(inside > 0 && arena.calls > inside, "the allocator was not asked");
  inside = run(&arena, FP8_CONTEXT_NO_ALLOC, 1);
  printf("NO_ALLOC, with workspace: %llu allocations inside calls\n", (unsigned long long)inside);
  REQUIRE(inside == 0, "a call allocated");
  run(&arena, FP8_CONTEXT_NO_ALLOC, 0);
  return 0;
}
