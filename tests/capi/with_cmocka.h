/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka.h needs these before it, whatever order includes are sorted in. */
#ifndef FP8_TESTS_WITH_CMOCKA_H
#define FP8_TESTS_WITH_CMOCKA_H
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#endif
