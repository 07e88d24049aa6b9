/* SPDX-License-Identifier: Apache-2.0 */
/* Errors, addresses and array views of the Python low level. Limited API of 3.11 only. */
#ifndef FP8_CAPI_SUPPORT_H
#define FP8_CAPI_SUPPORT_H

static PyObject *fp8py_errors; /* status -> exception class */
static PyObject *fp8py_dtypes; /* an array's dtype object -> enum fp8_dtype */

static PyObject *fp8py_none(void) {
  Py_INCREF(Py_None);
  return Py_None;
}

/* None, then one value, then a tuple of all outputs; takes both references */
static PyObject *fp8py_append(PyObject *result, PyObject *value) {
  PyObject *both;
  Py_ssize_t n, i;
  if (!value) {
    Py_XDECREF(result);
    return NULL;
  }
  if (!result || result == Py_None) {
    Py_XDECREF(result);
    return value;
  }
  n = PyTuple_Check(result) ? PyTuple_Size(result) : 1;
  both = PyTuple_New(n + 1);
  for (i = 0; both && i < n; ++i) {
    PyObject *item = PyTuple_Check(result) ? PyTuple_GetItem(result, i) : result;
    Py_INCREF(item);
    PyTuple_SetItem(both, i, item);
  }
  Py_DECREF(result);
  if (both) PyTuple_SetItem(both, n, value);
  return both;
}

/* the thread's last error as an exception of the class that set_errors() gave for its status */
static void fp8py_raise(fp8_status status) {
  fp8_error error;
  PyObject *type = NULL, *key, *instance;
  fp8_struct_init(&error, sizeof error);
  fp8_last_error(&error);
  key = PyLong_FromLong(status);
  if (fp8py_errors && key) type = PyDict_GetItem(fp8py_errors, key);
  Py_XDECREF(key);
  if (!type) {
    PyErr_SetString(PyExc_RuntimeError, error.message ? error.message : fp8_status_name(status));
    return;
  }
  instance = PyObject_CallFunction(type, "siiL", error.message ? error.message : fp8_status_name(status), (int)status,
                                   (int)error.domain, (long long)error.native_code);
  if (!instance) return;
  PyErr_SetObject(type, instance);
  Py_DECREF(instance);
}

static int fp8py_address(PyObject *object, void **address) {
  *address = NULL;
  if (object == Py_None) return 1;
  if (!PyLong_Check(object)) {
    PyErr_SetString(PyExc_TypeError, "expected an address (int) or None");
    return 0;
  }
  *address = PyLong_AsVoidPtr(object);
  return !PyErr_Occurred();
}

/* a stream: None, its address, or an object that has it (torch: cuda_stream, CuPy: ptr) */
static int fp8py_stream(PyObject *object, void **address) {
  static const char *const names[] = {"cuda_stream", "ptr"};
  size_t i;
  if (object == Py_None || PyLong_Check(object)) return fp8py_address(object, address);
  for (i = 0; i < sizeof names / sizeof *names; ++i) {
    PyObject *value = PyObject_GetAttrString(object, names[i]);
    if (value && PyLong_Check(value)) {
      const int ok = fp8py_address(value, address);
      Py_DECREF(value);
      return ok;
    }
    Py_XDECREF(value);
    PyErr_Clear();
  }
  PyErr_Format(PyExc_TypeError, "expected a stream: its address (int), None, or a stream of torch or CuPy, got %R",
               (PyObject *)Py_TYPE(object));
  return 0;
}

static int fp8py_buffer(PyObject *object, int writable, Py_buffer *view, int *held, void **address) {
  if (object == Py_None || PyLong_Check(object)) return fp8py_address(object, address);
  if (PyObject_GetBuffer(object, view, writable ? PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE : PyBUF_C_CONTIGUOUS)) return 0;
  *held = 1;
  *address = view->buf;
  return 1;
}

static int fp8py_int64s(PyObject *object, int64_t *values, int count) {
  Py_ssize_t n = PySequence_Size(object), i;
  if (n < 0) return 0;
  if (n > count) {
    PyErr_Format(PyExc_ValueError, "expected at most %d integers, got %zd", count, n);
    return 0;
  }
  memset(values, 0, (size_t)count * sizeof *values);
  for (i = 0; i < n; ++i) {
    PyObject *item = PySequence_GetItem(object, i);
    if (!item) return 0;
    values[i] = PyLong_AsLongLong(item);
    Py_DECREF(item);
    if (PyErr_Occurred()) return 0;
  }
  return 1;
}

static PyObject *fp8py_tuple(const int64_t *values, int count) {
  PyObject *all = PyTuple_New(count);
  int i;
  for (i = 0; all && i < count; ++i) PyTuple_SetItem(all, i, PyLong_FromLongLong(values[i]));
  return all;
}

/* ---- array views */
typedef struct { /* numpy's documented array interface, __array_struct__ */
  int two, nd;
  char typekind;
  int itemsize, flags;
  Py_ssize_t *shape, *strides;
  void *data;
  PyObject *descr;
} fp8py_array_interface;

static int fp8py_dtype_size(int dtype) {
  switch (dtype) {
    case FP8_DTYPE_E4M3:
    case FP8_DTYPE_E5M2:
    case FP8_DTYPE_E8M0:
    case FP8_DTYPE_U8:
      return 1;
    case FP8_DTYPE_F16:
    case FP8_DTYPE_BF16:
      return 2;
    case FP8_DTYPE_F32:
    case FP8_DTYPE_I32:
      return 4;
    default:
      return 8;
  }
}

/* the dtype asked for, or the array's own by way of set_dtypes() */
static int fp8py_dtype_of(PyObject *array, int asked, int itemsize) {
  PyObject *dtype, *code = NULL;
  int value;
  if (asked) {
    if (fp8py_dtype_size(asked) == itemsize) return asked;
    PyErr_Format(PyExc_TypeError, "elements of %d bytes cannot be viewed as fp8 dtype %d", itemsize, asked);
    return 0;
  }
  dtype = PyObject_GetAttrString(array, "dtype");
  if (!dtype) return 0;
  if (fp8py_dtypes) code = PyDict_GetItem(fp8py_dtypes, dtype);
  if (!code) {
    PyErr_Format(PyExc_TypeError,
                 "arrays of dtype %S are not supported; pass dtype= to view their bytes as another type", dtype);
    Py_DECREF(dtype);
    return 0;
  }
  Py_DECREF(dtype);
  value = (int)PyLong_AsLong(code);
  return value;
}

static int fp8py_view_numpy(PyObject *array, PyObject *capsule, int dtype, fp8_tensor *t) {
  const fp8py_array_interface *a = (const fp8py_array_interface *)PyCapsule_GetPointer(capsule, NULL);
  int i;
  if (!a) return 0;
  dtype = fp8py_dtype_of(array, dtype, a->itemsize);
  if (!dtype) return 0;
  if (a->nd > 4) {
    PyErr_Format(PyExc_ValueError, "an array of %d dimensions; at most 4 are supported", a->nd);
    return 0;
  }
  memset(t, 0, sizeof *t);
  t->data = a->data;
  t->dtype = dtype;
  t->ndim = a->nd;
  for (i = 0; i < a->nd; ++i) {
    t->shape[i] = (int64_t)a->shape[i];
    if (a->strides[i] % a->itemsize && a->shape[i] > 1) {
      PyErr_SetString(PyExc_ValueError, "strides must be multiples of the element's size");
      return 0;
    }
    t->stride[i] = (int64_t)(a->strides[i] / a->itemsize);
  }
  return 1;
}

/* __dlpack__(), or __dlpack__(stream=consumer) of an array on a CUDA device: the exporter then makes the data ready on
 * it */
static PyObject *fp8py_capsule(PyObject *array, long long consumer) {
  PyObject *method, *none, *named, *capsule = NULL, *where;
  int on_device = 0;
  if (!consumer) return PyObject_CallMethod(array, "__dlpack__", NULL);
  where = PyObject_CallMethod(array, "__dlpack_device__", NULL);
  if (where && PyTuple_Check(where) && PyTuple_Size(where) == 2) {
    const long type = PyLong_AsLong(PyTuple_GetItem(where, 0));
    on_device = type == 2 || type == 13; /* CUDA, managed */
  }
  Py_XDECREF(where);
  PyErr_Clear();
  if (!on_device) return PyObject_CallMethod(array, "__dlpack__", NULL);
  method = PyObject_GetAttrString(array, "__dlpack__");
  none = PyTuple_New(0);
  named = Py_BuildValue("{sL}", "stream", consumer);
  if (method && none && named) capsule = PyObject_Call(method, none, named);
  Py_XDECREF(method);
  Py_XDECREF(none);
  Py_XDECREF(named);
  return capsule;
}

/* the capsule stays alive as *kept; its deleter runs with it */
static int fp8py_view_dlpack(PyObject *array, int dtype, long long consumer, fp8_tensor *t, int32_t *device,
                             PyObject **kept) {
  PyObject *capsule = fp8py_capsule(array, consumer);
  int32_t where[2] = {1, 0};
  fp8_status status;
  void *managed;
  if (!capsule) return 0;
  managed = PyCapsule_GetPointer(capsule, "dltensor");
  if (!managed) {
    Py_DECREF(capsule);
    return 0;
  }
  status = fp8_tensor_from_dlpack(managed, dtype, t, &where[0], &where[1]);
  if (status != FP8_OK) {
    fp8py_raise(status);
    Py_DECREF(capsule);
    return 0;
  }
  if (device) memcpy(device, where, sizeof where);
  *kept = capsule;
  return 1;
}

/* an exporter's capsule: DLPack's managed tensor, which holds a reference to the owner of the memory */
typedef struct fp8py_managed {
  struct { /* DLTensor */
    void *data;
    int32_t device[2], ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
  } tensor;
  void *owner;
  void (*deleter)(struct fp8py_managed *);
  int64_t extents[8];
} fp8py_managed;

static void fp8py_delete(fp8py_managed *managed) {
  if (Py_IsInitialized()) { /* a consumer may free its last arrays after the interpreter ended */
    PyGILState_STATE state = PyGILState_Ensure();
    Py_XDECREF((PyObject *)managed->owner);
    PyGILState_Release(state);
  }
  free(managed);
}

static void fp8py_forget(PyObject *capsule) {
  fp8py_managed *managed;
  if (!PyCapsule_IsValid(capsule, "dltensor")) return; /* taken: the consumer deletes */
  managed = (fp8py_managed *)PyCapsule_GetPointer(capsule, "dltensor");
  if (managed) managed->deleter(managed);
}

/* as_bits: as unsigned integers of the dtype's size */
static PyObject *fp8py_export(PyObject *owner, const fp8_tensor *t, int32_t device_type, int32_t device_id,
                              int as_bits) {
  fp8py_managed *managed = (fp8py_managed *)calloc(1, sizeof *managed);
  PyObject *capsule;
  fp8_status status;
  if (!managed) return PyErr_NoMemory();
  managed->tensor.shape = managed->extents;
  managed->tensor.strides = managed->extents + 4;
  status = fp8_tensor_to_dlpack(t, device_type, device_id, &managed->tensor);
  if (status != FP8_OK) {
    fp8py_raise(status);
    free(managed);
    return NULL;
  }
  if (as_bits) managed->tensor.code = 1; /* kDLUInt */
  Py_INCREF(owner);
  managed->owner = owner;
  managed->deleter = fp8py_delete;
  capsule = PyCapsule_New(managed, "dltensor", fp8py_forget);
  if (!capsule) fp8py_delete(managed);
  return capsule;
}

/* a view of an array, without a copy. consumer: the stream that will use it as DLPack names it (1 = the default one), 0
 * on the CPU */
static int fp8py_view(PyObject *array, int dtype, long long consumer, fp8_tensor *t, int32_t *device, PyObject **kept) {
  PyObject *own, *capsule = PyObject_GetAttrString(array, "__array_struct__");
  if (capsule && PyCapsule_CheckExact(capsule)) {
    int ok = fp8py_view_numpy(array, capsule, dtype, t);
    Py_DECREF(capsule);
    return ok;
  }
  Py_XDECREF(capsule);
  PyErr_Clear();
  own = PyObject_GetAttrString(array, "_fp8_tensor"); /* fp8.DeviceArray: (fp8_tensor, device type, device) */
  if (own && PyTuple_Check(own) && PyTuple_Size(own) == 3) {
    void *tensor = NULL;
    int ok = SWIG_IsOK(SWIG_ConvertPtr(PyTuple_GetItem(own, 0), &tensor, SWIGTYPE_p_fp8_tensor, 0)) && tensor;
    if (ok) {
      *t = *(const fp8_tensor *)tensor;
      if (dtype && fp8py_dtype_size(dtype) != fp8py_dtype_size(t->dtype)) {
        PyErr_Format(PyExc_TypeError, "elements of %d bytes cannot be viewed as fp8 dtype %d",
                     fp8py_dtype_size(t->dtype), dtype);
        ok = 0;
      } else if (dtype) {
        t->dtype = dtype;
      }
      if (device) device[0] = (int32_t)PyLong_AsLong(PyTuple_GetItem(own, 1));
      if (device) device[1] = (int32_t)PyLong_AsLong(PyTuple_GetItem(own, 2));
    } else if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_TypeError, "_fp8_tensor holds no fp8_tensor");
    }
    Py_DECREF(own);
    return ok;
  }
  Py_XDECREF(own);
  PyErr_Clear();
  if (!dtype && PyObject_HasAttrString(array, "_fp8_view")) { /* fp8.view(array, dtype) */
    PyObject *pair = PyObject_GetAttrString(array, "_fp8_view");
    int ok =
        pair && PyTuple_Check(pair) && PyTuple_Size(pair) == 2 &&
        fp8py_view(PyTuple_GetItem(pair, 0), (int)PyLong_AsLong(PyTuple_GetItem(pair, 1)), consumer, t, device, kept);
    Py_XDECREF(pair);
    return ok;
  }
  if (PyObject_HasAttrString(array, "__dlpack__")) return fp8py_view_dlpack(array, dtype, consumer, t, device, kept);
  PyErr_Format(PyExc_TypeError, "expected an array (numpy, or anything with __dlpack__), got %R",
               (PyObject *)Py_TYPE(array));
  return 0;
}

#endif
