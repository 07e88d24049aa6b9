/* SPDX-License-Identifier: Apache-2.0 */
/* The calls with argument structs, taking arrays: what the package's functions use. One C call each, views on the
 * stack, the GIL released around the library's work. */
#ifndef FP8_CAPI_CALLS_H
#define FP8_CAPI_CALLS_H

enum { FP8PY_MOST = 8 };
typedef struct {
  const fp8_context *context;
  fp8_tensor views[FP8PY_MOST];
  PyObject *kept[FP8PY_MOST];
  int count, cuda, failed;
  int32_t device;
  long long consumer; /* the stream as DLPack names it */
} fp8py_call;

static void fp8py_begin(fp8py_call *call, const fp8_context *context, fp8_stream stream) {
  int64_t backend = FP8_BACKEND_CPU, device = 0;
  call->context = context;
  call->count = call->failed = 0;
  if (context && fp8_context_query(context, FP8_QUERY_BACKEND, &backend) != FP8_OK) backend = FP8_BACKEND_CPU;
  call->cuda = backend == FP8_BACKEND_CUDA;
  if (call->cuda) fp8_context_query(context, FP8_QUERY_DEVICE, &device);
  call->device = (int32_t)device;
  call->consumer = !call->cuda ? 0 : stream ? (long long)(intptr_t)stream : 1;
}

/* the view of an array, or NULL for None and after a failure */
static fp8_tensor *fp8py_in(fp8py_call *call, PyObject *array, const char *name) {
  int32_t device[2] = {1, 0}; /* DLPack: 1 CPU, 2 CUDA, 3 pinned, 13 managed */
  int i = call->count;
  int ours;
  if (call->failed || array == Py_None) return NULL;
  call->kept[i] = NULL;
  if (!fp8py_view(array, 0, call->consumer, &call->views[i], device, &call->kept[i])) {
    call->failed = 1;
    return NULL;
  }
  call->count = i + 1;
  ours = call->cuda ? device[0] == 2 || device[0] == 13 : device[0] == 1 || device[0] == 3 || device[0] == 13;
  if (!ours) {
    PyErr_Format(PyExc_ValueError, "%s lies %s, the context works %s", name,
                 device[0] == 2 ? "on a CUDA device" : "in host memory",
                 call->cuda ? "on a CUDA device" : "on the CPU");
    call->failed = 1;
    return NULL;
  }
  if (call->cuda && device[0] == 2 && device[1] != call->device) {
    PyErr_Format(PyExc_ValueError, "%s lies on CUDA device %d, the context works on device %d", name, (int)device[1],
                 (int)call->device);
    call->failed = 1;
    return NULL;
  }
  return &call->views[i];
}

static PyObject *fp8py_end(fp8py_call *call, fp8_status status) {
  if (!call->failed && status != FP8_OK) {
    fp8py_raise(status);
    call->failed = 1;
  }
  while (call->count > 0) Py_XDECREF(call->kept[--call->count]);
  return call->failed ? NULL : fp8py_none();
}

#define FP8PY_RUN(expression)                     \
  if (!call.failed) {                             \
    Py_BEGIN_ALLOW_THREADS status = (expression); \
    Py_END_ALLOW_THREADS                          \
  }                                               \
  return fp8py_end(&call, status)

static PyObject *call_quantize(const fp8_context *c, const fp8_recipe *r, int only_amax, PyObject *x, fp8_qtensor *q,
                               int role, PyObject *amax, PyObject *amax_col, PyObject *stats, PyObject *dbias,
                               unsigned int flags, fp8_stream stream) {
  fp8py_call call;
  fp8_quantize_args args;
  fp8_status status = FP8_OK;
  fp8_struct_init(&args, sizeof args);
  fp8py_begin(&call, c, stream);
  args.x = fp8py_in(&call, x, "x");
  args.q = q;
  args.role = role;
  args.amax = fp8py_in(&call, amax, "amax");
  args.amax_col = fp8py_in(&call, amax_col, "amax_col");
  args.stats = fp8py_in(&call, stats, "stats");
  args.dbias = fp8py_in(&call, dbias, "dbias");
  args.flags = flags;
  FP8PY_RUN(only_amax ? fp8_amax(c, r, &args, stream) : fp8_quantize(c, r, &args, stream));
}

static PyObject *call_dequantize(const fp8_context *c, const fp8_qtensor *q, unsigned int side, PyObject *x,
                                 fp8_stream stream) {
  fp8py_call call;
  fp8_status status = FP8_OK;
  fp8_tensor *view;
  fp8py_begin(&call, c, stream);
  view = fp8py_in(&call, x, "x");
  FP8PY_RUN(fp8_dequantize(c, q, side, view, stream));
}

static PyObject *call_cast(const fp8_context *c, PyObject *src, PyObject *scale, int saturate, PyObject *dst,
                           fp8_stream stream) {
  fp8py_call call;
  fp8_status status = FP8_OK;
  fp8_tensor *from, *by, *to;
  fp8py_begin(&call, c, stream);
  from = fp8py_in(&call, src, "src");
  by = fp8py_in(&call, scale, "scale");
  to = fp8py_in(&call, dst, "dst");
  FP8PY_RUN(fp8_cast(c, from, by, saturate, to, stream));
}

static PyObject *call_transpose(const fp8_context *c, PyObject *src, PyObject *dst, fp8_stream stream) {
  fp8py_call call;
  fp8_status status = FP8_OK;
  fp8_tensor *from, *to;
  fp8py_begin(&call, c, stream);
  from = fp8py_in(&call, src, "src");
  to = fp8py_in(&call, dst, "dst");
  FP8PY_RUN(fp8_transpose(c, from, to, stream));
}

static PyObject *call_measure(const fp8_context *c, PyObject *x, const fp8_qtensor *q, unsigned int side,
                              PyObject *sums, fp8_stream stream) {
  fp8py_call call;
  fp8_status status = FP8_OK;
  fp8_tensor *from, *to;
  fp8py_begin(&call, c, stream);
  from = fp8py_in(&call, x, "x");
  to = fp8py_in(&call, sums, "sums");
  FP8PY_RUN(fp8_measure(c, from, q, side, to, NULL, stream));
}

static PyObject *call_gemm(const fp8_context *c, const fp8_qtensor *a, unsigned int a_side, const fp8_qtensor *b,
                           unsigned int b_side, PyObject *bias, PyObject *d, unsigned int flags, int max_sms,
                           fp8_stream stream) {
  fp8py_call call;
  fp8_gemm_args args;
  fp8_status status = FP8_OK;
  fp8_struct_init(&args, sizeof args);
  fp8py_begin(&call, c, stream);
  args.a = a;
  args.b = b;
  args.a_side = a_side;
  args.b_side = b_side;
  args.bias = fp8py_in(&call, bias, "bias");
  args.d = fp8py_in(&call, d, "d");
  args.flags = flags;
  args.max_sms = max_sms;
  FP8PY_RUN(fp8_gemm(c, &args, stream));
}

static PyObject *call_forward(const fp8_context *c, const fp8_linear *linear, PyObject *x, const fp8_qtensor *qx,
                              const fp8_qtensor *w, PyObject *bias, PyObject *y, fp8_qtensor *saved_x, PyObject *amax_x,
                              PyObject *stats_x, unsigned int flags, int max_sms, fp8_stream stream) {
  fp8py_call call;
  fp8_linear_forward_args args;
  fp8_status status = FP8_OK;
  fp8_struct_init(&args, sizeof args);
  fp8py_begin(&call, c, stream);
  args.x = fp8py_in(&call, x, "x");
  args.qx = qx;
  args.w = w;
  args.bias = fp8py_in(&call, bias, "bias");
  args.y = fp8py_in(&call, y, "y");
  args.saved_x = saved_x;
  args.amax_x = fp8py_in(&call, amax_x, "amax_x");
  args.stats_x = fp8py_in(&call, stats_x, "stats_x");
  args.flags = flags;
  args.max_sms = max_sms;
  FP8PY_RUN(fp8_linear_forward(linear, &args, stream));
}

static PyObject *call_backward(const fp8_context *c, const fp8_linear *linear, PyObject *dy, const fp8_qtensor *qdy,
                               const fp8_qtensor *w, const fp8_qtensor *saved_x, PyObject *x, PyObject *dx,
                               PyObject *dw, PyObject *dbias, fp8_qtensor *saved_dy, PyObject *amax_dy,
                               PyObject *stats_dy, unsigned int flags, int max_sms, fp8_stream stream) {
  fp8py_call call;
  fp8_linear_backward_args args;
  fp8_status status = FP8_OK;
  fp8_struct_init(&args, sizeof args);
  fp8py_begin(&call, c, stream);
  args.dy = fp8py_in(&call, dy, "dy");
  args.qdy = qdy;
  args.w = w;
  args.saved_x = saved_x;
  args.x = fp8py_in(&call, x, "x");
  args.dx = fp8py_in(&call, dx, "dx");
  args.dw = fp8py_in(&call, dw, "dw");
  args.dbias = fp8py_in(&call, dbias, "dbias");
  args.saved_dy = saved_dy;
  args.amax_dy = fp8py_in(&call, amax_dy, "amax_dy");
  args.stats_dy = fp8py_in(&call, stats_dy, "stats_dy");
  args.flags = flags;
  args.max_sms = max_sms;
  FP8PY_RUN(fp8_linear_backward(linear, &args, stream));
}

#endif
