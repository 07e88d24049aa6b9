// SPDX-License-Identifier: Apache-2.0
#include "core/context.h"

#include "api/guard.h"
#include "api/text.h"
#include "fp8/recipe.h"

namespace {

using fp8::check;
using fp8::fail;
using fp8::guard;
using fp8::need;

int64_t query(const fp8_context &c, int32_t what) {
  int64_t value = 0;
  switch (what) {
    case FP8_QUERY_BACKEND:
      return c.backend;
    case FP8_QUERY_DEVICE:
      return c.device;
    case FP8_QUERY_THREADS:
      return c.threads;
    case FP8_QUERY_SMS:
    case FP8_QUERY_CAPABILITY:
      check(c.api->query(c.self, what, &value));
      return value;
    case FP8_QUERY_SUPPORT + FP8_PRESET_TENSOR_DELAYED:
      return FP8_SUPPORT_NONE;
  }
  if (what <= FP8_QUERY_SUPPORT || what > FP8_QUERY_SUPPORT + FP8_PRESET_MX_W2D)
    fail(FP8_ERR_ARGUMENT, "what is %d, not an enum fp8_query", what);
  check(c.api->query(c.self, what, &value));
  return value;
}

std::string explain(const fp8_context &c) {
  uint64_t needed = 0;
  check(c.api->explain(c.self, nullptr, 0, &needed));
  std::string text(needed, '\0');
  check(c.api->explain(c.self, &text[0], needed, &needed));
  text.resize(std::strlen(text.c_str()));
  return text;
}

}  // namespace

extern "C" {

fp8_status fp8_context_create(const fp8_context_config *config, fp8_context **context) {
  return guard("fp8_context_create", [&] {
    need(context, "context");
    *context = nullptr;
    fp8_context_config ours{};
    fp8_allocator allocator{};
    if (config) ours = fp8::read_sized(config, "config");
    if (ours.allocator) {
      allocator = fp8::read_sized(ours.allocator, "config.allocator");
      ours.allocator = &allocator;
    }
    *context = fp8::create_context(ours);
  });
}

fp8_status fp8_context_query(const fp8_context *context, int32_t what, int64_t *value) {
  return guard("fp8_context_query", [&] {
    need(context, "context");
    need(value, "value");
    *value = query(*context, what);
  });
}

fp8_status fp8_context_explain(const fp8_context *context, char *text, uint64_t bytes, uint64_t *needed) {
  return guard("fp8_context_explain", [&] {
    need(context, "context");
    fp8::write_text(explain(*context), text, bytes, needed);
  });
}

fp8_status fp8_context_counters(const fp8_context *context, fp8_counters *counters) {
  return guard("fp8_context_counters", [&] {
    using K = fp8::ops::Counters;
    need(context, "context");
    fp8_counters ours{};
    auto at = [&](K::Kind kind) { return context->counters[kind].load(std::memory_order_relaxed); };
    ours.allocations = at(K::kAllocations);
    ours.launches = at(K::kLaunches);
    ours.quantizations = at(K::kQuantizations);
    ours.gemms = at(K::kGemms);
    ours.emulated_gemms = at(K::kEmulatedGemms);
    ours.padded_gemms = at(K::kPaddedGemms);
    ours.bytes_communicated = at(K::kBytesCommunicated);
    fp8::write_sized(counters, ours, "counters", true);
  });
}

void fp8_context_destroy(fp8_context *context) { fp8::Ref<fp8_context>::adopt(context); }

fp8_status fp8_buffer_alloc(const fp8_context *context, uint64_t bytes, fp8_buffer *buffer, fp8_stream stream) {
  return guard("fp8_buffer_alloc", [&] {
    need(context, "context");
    need(buffer, "buffer");
    buffer->data = nullptr;
    buffer->bytes = 0;
    fp8::check_stream(*context, stream);
    buffer->data = fp8::allocate_uncounted(*context, bytes, FP8_SPACE_DEVICE, stream);
    buffer->bytes = bytes;
  });
}

fp8_status fp8_buffer_copy(const fp8_context *context, void *dst, const void *src, uint64_t bytes, fp8_stream stream) {
  return guard("fp8_buffer_copy", [&] {
    need(context, "context");
    fp8::check_stream(*context, stream);
    if (bytes == 0) return;
    need(dst, "dst");
    need(src, "src");
    check(context->api->copy(context->self, dst, src, bytes, stream));
  });
}

fp8_status fp8_buffer_zero(const fp8_context *context, void *dst, uint64_t bytes, fp8_stream stream) {
  return guard("fp8_buffer_zero", [&] {
    need(context, "context");
    fp8::check_stream(*context, stream);
    if (bytes == 0) return;
    need(dst, "dst");
    check(context->api->zero(context->self, dst, bytes, stream));
  });
}

void fp8_buffer_free(const fp8_context *context, fp8_buffer *buffer, fp8_stream stream) {
  if (!context || !buffer) return;
  fp8::deallocate(*context, buffer->data, buffer->bytes, FP8_SPACE_DEVICE, stream);
  buffer->data = nullptr;
  buffer->bytes = 0;
}

fp8_status fp8_stream_create(const fp8_context *context, fp8_stream *stream) {
  return guard("fp8_stream_create", [&] {
    need(context, "context");
    need(stream, "stream");
    *stream = nullptr;
    check(context->api->stream_create(context->self, stream));
  });
}

fp8_status fp8_stream_sync(const fp8_context *context, fp8_stream stream) {
  return guard("fp8_stream_sync", [&] {
    need(context, "context");
    fp8::check_stream(*context, stream);
    check(context->api->stream_sync(context->self, stream));
  });
}

fp8_status fp8_stream_wait(const fp8_context *context, fp8_stream stream, fp8_stream other) {
  return guard("fp8_stream_wait", [&] {
    need(context, "context");
    fp8::check_stream(*context, stream);
    fp8::check_stream(*context, other);
    check(context->api->stream_wait(context->self, stream, other));
  });
}

void fp8_stream_destroy(const fp8_context *context, fp8_stream stream) {
  if (context && stream) context->api->stream_destroy(context->self, stream);
}

}  // extern "C"
