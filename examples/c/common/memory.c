/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include "place.h"

void memory_open(Memory *memory, const fp8_context *context, fp8_stream stream) {
  Memory empty = {context, stream, NULL, 0, 0, 0};
  *memory = empty;
}

fp8_buffer memory_buffer(Memory *memory, uint64_t bytes) {
  fp8_buffer buffer = {NULL, 0};
  if (bytes == 0) return buffer;
  if (memory->count == memory->capacity) {
    memory->capacity = memory->capacity ? 2 * memory->capacity : 64;
    memory->buffers = realloc(memory->buffers, (size_t)memory->capacity * sizeof *memory->buffers);
    REQUIRE(memory->buffers, "out of memory");
  }
  CHECK(fp8_buffer_alloc(memory->context, bytes, &buffer, memory->stream));
  CHECK(fp8_buffer_zero(memory->context, buffer.data, bytes, memory->stream));
  memory->buffers[memory->count++] = buffer;
  memory->bytes += bytes;
  return buffer;
}

void *memory_alloc(Memory *memory, uint64_t bytes) { return memory_buffer(memory, bytes).data; }

void memory_place(Memory *memory, fp8_qtensor *q, uint32_t sides) {
  uint64_t bytes;
  CHECK(fp8_qtensor_bytes(q, sides, &bytes));
  if (bytes == 0) return; /* unquantized sides are views of their source: nothing to place */
  fp8_buffer buffer = memory_buffer(memory, bytes);
  CHECK(fp8_qtensor_place(q, sides, &buffer));
}

void memory_write(const Memory *memory, void *device, const void *host, uint64_t bytes) {
  CHECK(fp8_buffer_copy(memory->context, device, host, bytes, memory->stream));
  place_wait(memory->stream);
}

void memory_read(const Memory *memory, void *host, const void *device, uint64_t bytes) {
  CHECK(fp8_buffer_copy(memory->context, host, device, bytes, memory->stream));
  place_wait(memory->stream);
}

void memory_zero(const Memory *memory, void *device, uint64_t bytes) {
  CHECK(fp8_buffer_zero(memory->context, device, bytes, memory->stream));
}

void memory_close(Memory *memory) {
  for (int i = memory->count; i-- > 0;) fp8_buffer_free(memory->context, &memory->buffers[i], memory->stream);
  free(memory->buffers);
  memory_open(memory, memory->context, memory->stream);
}
