/* SPDX-License-Identifier: Apache-2.0 */
/* Errors, versions, and the rule of sized structs: older and newer callers, forgotten inits. */
#include <pthread.h>
#include <string.h>

#include "fp8/fp8.h"
#include "with_cmocka.h"

static void names(void **state) {
  (void)state;
  assert_string_equal(fp8_status_name(FP8_OK), "FP8_OK");
  assert_string_equal(fp8_status_name(FP8_ERR_ARGUMENT), "FP8_ERR_ARGUMENT");
  assert_string_equal(fp8_status_name(FP8_ERR_INTERNAL), "FP8_ERR_INTERNAL");
  assert_string_equal(fp8_status_name(-1), "FP8_ERR_UNKNOWN");
  assert_string_equal(fp8_status_name(10), "FP8_ERR_UNKNOWN");
  assert_int_equal(fp8_version(), FP8_VERSION_MAJOR * 10000 + FP8_VERSION_MINOR * 100 + FP8_VERSION_PATCH);
  assert_non_null(strstr(fp8_build_info(), "libfp8 "));
}

static void init_writes_zeroes_and_the_callers_size(void **state) {
  (void)state;
  struct {
    fp8_recipe_config config;
    unsigned char after[8];
  } s;
  memset(&s, 0xab, sizeof s);
  FP8_INIT(&s.config);
  assert_int_equal(s.config.struct_size, sizeof s.config);
  assert_int_equal(s.config.preset, 0);
  assert_int_equal(s.config.master_rounding, 0);
  for (size_t i = 0; i < sizeof s.after; ++i) assert_int_equal(s.after[i], 0xab);
  fp8_struct_init(NULL, 64); /* does nothing */
}

static void last_error_names_function_field_and_value(void **state) {
  (void)state;
  fp8_recipe_config config;
  fp8_recipe *recipe = (fp8_recipe *)&config;
  FP8_INIT(&config);
  config.preset = 99;
  assert_int_equal(fp8_recipe_create(&config, &recipe), FP8_ERR_ARGUMENT);
  assert_null(recipe);
  fp8_error error;
  FP8_INIT(&error);
  fp8_last_error(&error);
  assert_int_equal(error.status, FP8_ERR_ARGUMENT);
  assert_int_equal(error.domain, FP8_DOMAIN_LIBRARY);
  assert_string_equal(error.origin, "fp8_recipe_create");
  assert_string_equal(error.message, "fp8_recipe_create: config.preset is 99, not an enum fp8_preset");
  /* a report is cut to an older caller's size */
  struct {
    fp8_error error;
  } old;
  memset(&old, 0, sizeof old);
  old.error.struct_size = offsetof(fp8_error, message);
  old.error.message = "mine";
  fp8_last_error(&old.error);
  assert_int_equal(old.error.status, FP8_ERR_ARGUMENT);
  assert_string_equal(old.error.message, "mine");
  fp8_last_error(NULL);
}

static void sized_structs(void **state) {
  (void)state;
  fp8_recipe *recipe = NULL;
  union {
    fp8_recipe_config config;
    unsigned char bytes[sizeof(fp8_recipe_config) + 64];
  } u;
  memset(&u, 0, sizeof u);
  u.config.preset = FP8_PRESET_BLOCK;
  assert_int_equal(fp8_recipe_create(&u.config, &recipe), FP8_ERR_ARGUMENT); /* forgotten init */
  u.config.struct_size = 3;
  assert_int_equal(fp8_recipe_create(&u.config, &recipe), FP8_ERR_ARGUMENT);
  u.config.struct_size = (size_t)-1;
  assert_int_equal(fp8_recipe_create(&u.config, &recipe), FP8_ERR_ARGUMENT);
  /* an older caller: the fields it does not know are zero, whatever lies behind its struct */
  memset(u.bytes + offsetof(fp8_recipe_config, coverage), 0xff, sizeof u - offsetof(fp8_recipe_config, coverage));
  u.config.struct_size = offsetof(fp8_recipe_config, coverage);
  assert_int_equal(fp8_recipe_create(&u.config, &recipe), FP8_OK);
  fp8_recipe_destroy(recipe);
  /* a newer caller: zeroes beyond what this library knows are fine, anything else is not */
  memset(&u, 0, sizeof u);
  u.config.struct_size = sizeof u.bytes;
  u.config.preset = FP8_PRESET_BLOCK;
  assert_int_equal(fp8_recipe_create(&u.config, &recipe), FP8_OK);
  fp8_recipe_config out;
  FP8_INIT(&out);
  out.struct_size = offsetof(fp8_recipe_config, master_rounding); /* too short for a field that is not default */
  assert_int_equal(fp8_recipe_query(recipe, &out), FP8_ERR_UNSUPPORTED);
  fp8_recipe_destroy(recipe);
  u.bytes[sizeof(fp8_recipe_config) + 5] = 1;
  assert_int_equal(fp8_recipe_create(&u.config, &recipe), FP8_ERR_UNSUPPORTED);
  assert_int_equal(fp8_recipe_create(NULL, &recipe), FP8_ERR_ARGUMENT);
  assert_int_equal(fp8_recipe_create(&u.config, NULL), FP8_ERR_ARGUMENT);
}

static void *fails_here(void *out) {
  fp8_error error;
  fp8_recipe *recipe = NULL;
  fp8_recipe_from_string("no-such-recipe", &recipe);
  FP8_INIT(&error);
  fp8_last_error(&error);
  *(int32_t *)out = error.status;
  return NULL;
}

static void errors_belong_to_their_thread(void **state) {
  (void)state;
  assert_int_equal(fp8_qtensor_bytes(NULL, FP8_SIDE_ROW, NULL), FP8_ERR_ARGUMENT);
  pthread_t thread;
  int32_t status = 0;
  assert_int_equal(pthread_create(&thread, NULL, fails_here, &status), 0);
  pthread_join(thread, NULL);
  assert_int_equal(status, FP8_ERR_ARGUMENT);
  fp8_error error;
  FP8_INIT(&error);
  fp8_last_error(&error);
  assert_string_equal(error.origin, "fp8_qtensor_bytes");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names),
      cmocka_unit_test(init_writes_zeroes_and_the_callers_size),
      cmocka_unit_test(last_error_names_function_field_and_value),
      cmocka_unit_test(sized_structs),
      cmocka_unit_test(errors_belong_to_their_thread),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
