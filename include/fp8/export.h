/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  FP8_API marks every exported function. */
#ifndef FP8_EXPORT_H
#define FP8_EXPORT_H
#ifndef FP8_API
#if defined(__GNUC__) && !defined(SWIG)
/** Marks a function that libfp8.so exports. */
#define FP8_API __attribute__((visibility("default")))
#else
#define FP8_API
#endif
#endif
#endif
