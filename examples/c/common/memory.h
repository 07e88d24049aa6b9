/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory that dies together. The examples never call malloc for a tensor: on another backend the same lines give
 * that device's memory, and the host reads it through memory_read. */
#ifndef EXAMPLE_MEMORY_H
#define EXAMPLE_MEMORY_H
#include "check.h"

typedef struct Memory {
  const fp8_context *context;
  fp8_stream stream;
  fp8_buffer *buffers;
  int count, capacity;
  uint64_t bytes;
} Memory;

void memory_open(Memory *memory, const fp8_context *context, fp8_stream stream);
fp8_buffer memory_buffer(Memory *memory, uint64_t bytes); /* zeroed, 256-byte aligned; {NULL, 0} for 0 bytes */
void *memory_alloc(Memory *memory, uint64_t bytes);
void memory_place(Memory *memory, fp8_qtensor *q, uint32_t sides); /* gives these sides of a described qtensor a home */
void memory_write(const Memory *memory, void *device, const void *host, uint64_t bytes); /* [waits] */
void memory_read(const Memory *memory, void *host, const void *device, uint64_t bytes);  /* [waits] */
void memory_zero(const Memory *memory, void *device, uint64_t bytes);
void memory_close(Memory *memory);
#endif
