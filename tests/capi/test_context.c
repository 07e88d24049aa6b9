/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: configuration, queries, allocators, buffers, streams, destruction in any order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fp8/fp8.h"
#include "with_cmocka.h"

static fp8_context_config cpu(void) {
  fp8_context_config c;
  FP8_INIT(&c);
  c.backend = FP8_BACKEND_CPU;
  return c;
}

static void create_and_query(void **state) {
  (void)state;
  fp8_context_config config = cpu();
  config.threads = 3;
  fp8_context *c = NULL;
  assert_int_equal(fp8_context_create(&config, &c), FP8_OK);
  int64_t value = -1;
  assert_int_equal(fp8_context_query(c, FP8_QUERY_BACKEND, &value), FP8_OK);
  assert_int_equal(value, FP8_BACKEND_CPU);
  assert_int_equal(fp8_context_query(c, FP8_QUERY_DEVICE, &value), FP8_OK);
  assert_int_equal(value, 0);
  assert_int_equal(fp8_context_query(c, FP8_QUERY_THREADS, &value), FP8_OK);
  assert_int_equal(value, 3);
  assert_int_equal(fp8_context_query(c, FP8_QUERY_CAPABILITY, &value), FP8_OK);
  assert_int_equal(value, 0);
  for (int32_t p = FP8_PRESET_NONE; p <= FP8_PRESET_MX_W2D; ++p) {
    assert_int_equal(fp8_context_query(c, FP8_QUERY_SUPPORT + p, &value), FP8_OK);
    if (p == FP8_PRESET_TENSOR_DELAYED)
      assert_int_equal(value, FP8_SUPPORT_NONE);
    else
      assert_int_not_equal(value, FP8_SUPPORT_NONE);
  }
  value = 77;
  assert_int_equal(fp8_context_query(c, FP8_QUERY_SUPPORT, &value), FP8_ERR_ARGUMENT);
  assert_int_equal(fp8_context_query(c, 99999, &value), FP8_ERR_ARGUMENT);
  assert_int_equal(fp8_context_query(NULL, FP8_QUERY_DEVICE, &value), FP8_ERR_ARGUMENT);
  assert_int_equal(fp8_context_query(c, FP8_QUERY_DEVICE, NULL), FP8_ERR_ARGUMENT);
  assert_int_equal(value, 77);
  uint64_t needed = 0;
  assert_int_equal(fp8_context_explain(c, NULL, 0, &needed), FP8_OK);
  assert_true(needed > 1);
  char *text = malloc(needed);
  assert_int_equal(fp8_context_explain(c, text, needed, NULL), FP8_OK);
  assert_non_null(strstr(text, "gemm "));
  assert_non_null(strstr(text, "quantize"));
  free(text);
  fp8_context_destroy(c);
  fp8_context_destroy(NULL);
}

static void bad_configs(void **state) {
  (void)state;
  fp8_context *c = (fp8_context *)&c;
  fp8_context_config k = cpu();
  k.device = 1;
  assert_int_equal(fp8_context_create(&k, &c), FP8_ERR_ARGUMENT);
  assert_null(c);
  k = cpu(), k.device = -1;
  assert_int_equal(fp8_context_create(&k, &c), FP8_ERR_ARGUMENT);
  k = cpu(), k.backend = 7;
  assert_int_equal(fp8_context_create(&k, &c), FP8_ERR_ARGUMENT);
  k = cpu(), k.threads = -2;
  assert_int_equal(fp8_context_create(&k, &c), FP8_ERR_ARGUMENT);
  k = cpu(), k.flags = 1u << 20;
  assert_int_equal(fp8_context_create(&k, &c), FP8_ERR_UNSUPPORTED);
  k = cpu(), k.backend = FP8_BACKEND_CUDA, k.flags = FP8_CONTEXT_REFERENCE; /* before anything looks for a GPU */
  assert_int_equal(fp8_context_create(&k, &c), FP8_ERR_UNSUPPORTED);
  fp8_error error;
  FP8_INIT(&error);
  fp8_last_error(&error);
  assert_non_null(strstr(error.message, "FP8_CONTEXT_REFERENCE, whose product only the CPU has"));
  k = cpu(), k.reserved = 1;
  assert_int_equal(fp8_context_create(&k, &c), FP8_ERR_UNSUPPORTED);
  fp8_allocator a;
  FP8_INIT(&a);
  k = cpu(), k.allocator = &a;
  assert_int_equal(fp8_context_create(&k, &c), FP8_ERR_ARGUMENT);
  k = cpu(), k.struct_size = 0;
  assert_int_equal(fp8_context_create(&k, &c), FP8_ERR_ARGUMENT);
  assert_int_equal(fp8_context_create(NULL, NULL), FP8_ERR_ARGUMENT);
}

static void buffers(void **state) {
  (void)state;
  fp8_context_config config = cpu();
  config.flags = FP8_CONTEXT_NO_ALLOC; /* the caller's own buffers are no hidden allocation */
  fp8_context *c = NULL;
  assert_int_equal(fp8_context_create(&config, &c), FP8_OK);
  fp8_buffer b = {(void *)1, 1};
  assert_int_equal(fp8_buffer_alloc(c, 1000, &b, NULL), FP8_OK);
  assert_int_equal((uintptr_t)b.data % 256, 0);
  assert_int_equal(b.bytes, 1000);
  unsigned char host[1000];
  memset(host, 0x5a, sizeof host);
  assert_int_equal(fp8_buffer_copy(c, b.data, host, sizeof host, NULL), FP8_OK);
  assert_int_equal(fp8_buffer_zero(c, b.data, 500, NULL), FP8_OK);
  assert_int_equal(fp8_buffer_copy(c, host, b.data, sizeof host, NULL), FP8_OK);
  assert_int_equal(host[499], 0);
  assert_int_equal(host[500], 0x5a);
  assert_int_equal(fp8_buffer_copy(c, NULL, host, 1, NULL), FP8_ERR_ARGUMENT);
  assert_int_equal(fp8_buffer_copy(c, NULL, NULL, 0, NULL), FP8_OK);
  assert_int_equal(fp8_buffer_zero(c, NULL, 0, NULL), FP8_OK);
  assert_int_equal(fp8_buffer_zero(c, b.data, 1, (fp8_stream)&b), FP8_ERR_ARGUMENT); /* the CPU has no streams */
  fp8_counters counters;
  FP8_INIT(&counters);
  assert_int_equal(fp8_context_counters(c, &counters), FP8_OK);
  assert_int_equal(counters.allocations, 0);
  fp8_buffer_free(c, &b, NULL);
  assert_null(b.data);
  fp8_buffer_free(c, &b, NULL);
  assert_int_equal(fp8_buffer_alloc(c, 0, &b, NULL), FP8_OK);
  assert_null(b.data);
  assert_int_equal(fp8_buffer_alloc(c, UINT64_MAX / 2, &b, NULL), FP8_ERR_NO_MEMORY);
  assert_null(b.data);
  fp8_stream s = (fp8_stream)1;
  assert_int_equal(fp8_stream_create(c, &s), FP8_OK);
  assert_null(s);
  assert_int_equal(fp8_stream_sync(c, s), FP8_OK);
  assert_int_equal(fp8_stream_wait(c, s, s), FP8_OK);
  fp8_stream_destroy(c, s);
  fp8_context_destroy(c);
}

typedef struct {
  int live, calls, refuse;
  uint64_t bytes;
} ledger;

static void *ledger_alloc(void *user, uint64_t bytes, uint64_t align, int32_t space, fp8_stream stream) {
  ledger *l = user;
  void *p = NULL;
  (void)stream;
  assert_int_equal(space, FP8_SPACE_DEVICE);
  l->calls++;
  if (l->refuse || posix_memalign(&p, align, bytes)) return NULL;
  l->live++;
  l->bytes += bytes;
  return p;
}

static void ledger_free(void *user, void *p, uint64_t bytes, int32_t space, fp8_stream stream) {
  ledger *l = user;
  (void)space, (void)stream;
  l->live--;
  l->bytes -= bytes;
  free(p);
}

static void callers_allocator(void **state) {
  (void)state;
  ledger l = {0, 0, 0, 0};
  fp8_allocator a;
  FP8_INIT(&a);
  a.user = &l, a.alloc = ledger_alloc, a.free = ledger_free;
  fp8_context_config config = cpu();
  config.allocator = &a;
  fp8_context *c = NULL;
  assert_int_equal(fp8_context_create(&config, &c), FP8_OK);
  memset(&a, 0, sizeof a); /* it was copied */
  fp8_buffer b;
  assert_int_equal(fp8_buffer_alloc(c, 123, &b, NULL), FP8_OK);
  assert_int_equal(l.live, 1);
  assert_int_equal(l.bytes, 123);
  fp8_buffer_free(c, &b, NULL);
  assert_int_equal(l.live, 0);
  assert_int_equal(l.bytes, 0);
  l.refuse = 1;
  assert_int_equal(fp8_buffer_alloc(c, 1, &b, NULL), FP8_ERR_NO_MEMORY);
  assert_null(b.data);
  fp8_context_destroy(c);
}

/* In a process of its own, since a module is looked for once: 0 = the status is `want` and the message names the path.
 */
static int create_cuda_in_child(const char *folder, fp8_status want) {
  const pid_t child = fork();
  int status = -1;
  if (child == 0) {
    fp8_context_config config;
    fp8_context *c = NULL;
    fp8_error error;
    FP8_INIT(&config);
    FP8_INIT(&error);
    config.backend = FP8_BACKEND_CUDA;
    setenv("FP8_MODULE_PATH", folder, 1);
    if (fp8_context_create(&config, &c) != want || c) _exit(1);
    fp8_last_error(&error);
    _exit(strstr(error.message, folder) && strstr(error.message, "FP8_MODULE_PATH") ? 0 : 2);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

/* without a module, a driver or a device alike: what is not here is unsupported, what is here and fails is an error of
 * the backend */
static void absent_device(void **state) {
  fp8_context_config config;
  fp8_context *c = NULL;
  fp8_error error;
  (void)state;
  FP8_INIT(&config);
  FP8_INIT(&error);
  config.backend = FP8_BACKEND_CUDA;
  config.device = 1000;
  assert_int_equal(fp8_context_create(&config, &c), FP8_ERR_UNSUPPORTED);
  assert_null(c);
  fp8_last_error(&error);
  assert_true(strlen(error.message) > 20);
}

static void module_absent_or_broken(void **state) {
  char folder[] = "/tmp/fp8_module_XXXXXX", file[64];
  FILE *f;
  (void)state;
  assert_non_null(mkdtemp(folder));
  assert_int_equal(create_cuda_in_child(folder, FP8_ERR_UNSUPPORTED), 0);
  snprintf(file, sizeof file, "%s/libfp8_cuda.so", folder);
  f = fopen(file, "w");
  assert_non_null(f);
  fputs("not a library", f);
  fclose(f);
  assert_int_equal(create_cuda_in_child(folder, FP8_ERR_BACKEND), 0);
  unlink(file);
  rmdir(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(create_and_query),
                                     cmocka_unit_test(bad_configs),
                                     cmocka_unit_test(buffers),
                                     cmocka_unit_test(callers_allocator),
                                     cmocka_unit_test(module_absent_or_broken),
                                     cmocka_unit_test(absent_device)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
