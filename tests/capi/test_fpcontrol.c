/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts call with flush-to-zero, denormals-are-zero and another rounding set: the bits stay, the caller's word too. */
#include "linear_case.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
static unsigned get_word(void) { return _mm_getcsr() & ~0x3fu; }
static void set_word(unsigned w) { _mm_setcsr(w); }
#define DEFAULT_WORD 0x1f80u
#define HOSTILE_WORD (0x1f80u | 0x8040u | 0x4000u) /* FTZ, DAZ, round up */
#elif defined(__aarch64__)
static unsigned get_word(void) {
  unsigned long long w;
  __asm__ volatile("mrs %0, fpcr" : "=r"(w));
  return (unsigned)w;
}
static void set_word(unsigned w) { __asm__ volatile("msr fpcr, %0" ::"r"((unsigned long long)w)); }
#define DEFAULT_WORD 0u
#define HOSTILE_WORD (1u << 24 | 1u << 22) /* FZ, round up */
#endif

#ifdef DEFAULT_WORD
static void test_word(void **state) {
  static const int64_t rows = 300, cols = 512; /* enough for several threads */
  int p;
  (void)state;
  for (p = 1; p < PRESETS; ++p) {
    linear_case k;
    fp8_recipe_config config;
    fp8_linear_forward_args f;
    fp8_linear_backward_args b;
    fp8_tensor y, dx, dw;
    fp8_qtensor first, second;
    fp8_quantize_args a;
    float *v = malloc((size_t)(rows * cols) * 4);
    int64_t i;
    FP8_INIT(&config);
    config.preset = kPresets[p];
    case_with(&k, g_context, &config, rows, cols, 64, FP8_DTYPE_F32, FP8_DTYPE_F32);
    for (i = 0; i < rows * cols; ++i) v[i] = normal() * ldexpf(1, i / cols % 3 == 0 ? -130 : -20); /* subnormal rows */
    put(&k.x, v);
    free(v);
    y = like(&k.y), dx = like(&k.dx), dw = like(&k.dw);
    f = forward_args(&k), b = backward_args(&k);
    OK(fp8_linear_forward(k.l, &f, NULL));
    OK(fp8_linear_backward(k.l, &b, NULL));
    first = quantized(k.r, FP8_ROLE_ACTIVATION, &k.x, FP8_SIDE_BOTH);
    second = describe(k.r, FP8_ROLE_ACTIVATION, rows, cols, FP8_SIDE_BOTH), place(&second, FP8_SIDE_BOTH);
    f.y = &y, b.dx = &dx, b.dw = &dw;
    FP8_INIT(&a);
    a.x = &k.x, a.q = &second, a.role = FP8_ROLE_ACTIVATION;
    set_word(HOSTILE_WORD);
    {
      const fp8_status s0 = fp8_quantize(g_context, k.r, &a, NULL);
      const fp8_status s1 = fp8_linear_forward(k.l, &f, NULL), s2 = fp8_linear_backward(k.l, &b, NULL);
      const unsigned word = get_word();
      set_word(DEFAULT_WORD);
      assert_int_equal(word, HOSTILE_WORD);
      assert_true(s0 == FP8_OK && s1 == FP8_OK && s2 == FP8_OK);
    }
    sync();
    assert_true(equal(&first.row, &second.row) && equal(&first.col, &second.col));
    assert_true(equal(&y, &k.y) && equal(&dx, &k.dx) && equal(&dw, &k.dw));
    case_free(&k);
  }
}
#else
static void test_word(void **state) { (void)state; }
#endif

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_word, free_all)};
  return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
