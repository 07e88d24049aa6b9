/* SPDX-License-Identifier: Apache-2.0 */
/* The one description of the bindings. SWIG reads this file and the public headers once (-python -doxygen -threads -xmlout):
 * it writes the Python low level itself, and its parse tree, from which gen/ emits Julia, Rust, the stubs and the layout checks.
 *
 * What the headers cannot say is said here, for all languages:
 *   fp8_destroy, fp8_threads   of a handle: who frees it; "shared" = concurrent calls are fine, "serial" = one caller at a time
 *   numinputs=0 typemaps       a parameter of this type and name is an output (gen/ reads the same mark)
 *   fp8_bits                   an enum whose values are or-ed
 *   fp8_sized                  a struct that starts with struct_size: every language starts it by fp8_struct_init
 *   fp8_waits                  a call that may block or run for long: Python gives up the GIL, Julia's GC must expect it
 *   fp8_skip                   not for the other languages (SWIG's own %ignore means: not in Python)
 */
%module(package="fp8") capi

%define FP8_HANDLE(NAME, DESTROY, THREADS)
%feature("fp8_destroy", #DESTROY) NAME;
%feature("fp8_threads", THREADS) NAME;
%enddef
FP8_HANDLE(fp8_context, fp8_context_destroy, "shared")
FP8_HANDLE(fp8_recipe, fp8_recipe_destroy, "shared")
FP8_HANDLE(fp8_linear, fp8_linear_destroy, "shared")
FP8_HANDLE(fp8_param, fp8_param_destroy, "shared")
FP8_HANDLE(fp8_comm, fp8_comm_destroy, "serial")
FP8_HANDLE(fp8_dispatch_plan, fp8_dispatch_plan_destroy, "serial")

%define FP8_WAITS(NAME)
%feature("fp8_waits", "1") NAME;
%feature("nothread", "0") NAME;
%feature("threadallow", "1") NAME;
%enddef

/* sets of bits, which travel as uint32_t; every other enum travels as int32_t */
%define FP8_BITS(NAME)
%feature("fp8_bits", "1") NAME;
%enddef
FP8_BITS(fp8_side)
FP8_BITS(fp8_context_flags)
FP8_BITS(fp8_gemm_kind)
FP8_BITS(fp8_quantize_flags)
FP8_BITS(fp8_gemm_flags)
FP8_BITS(fp8_linear_flags)
FP8_BITS(fp8_comm_caps)

%ignore FP8_INIT;
%ignore FP8_API;

#ifdef SWIGPYTHON
%include "python/capi.swg"
#endif

FP8_WAITS(fp8_context_create)
FP8_WAITS(fp8_buffer_alloc)
FP8_WAITS(fp8_buffer_copy)
FP8_WAITS(fp8_buffer_zero)
FP8_WAITS(fp8_stream_sync)
FP8_WAITS(fp8_quantize)
FP8_WAITS(fp8_amax)
FP8_WAITS(fp8_dequantize)
FP8_WAITS(fp8_requantize)
FP8_WAITS(fp8_transpose)
FP8_WAITS(fp8_cast)
FP8_WAITS(fp8_measure)
FP8_WAITS(fp8_gemm)
FP8_WAITS(fp8_linear_prepare)
FP8_WAITS(fp8_linear_forward)
FP8_WAITS(fp8_linear_backward)
FP8_WAITS(fp8_comm_create_nccl_rank)
FP8_WAITS(fp8_comm_wait)
FP8_WAITS(fp8_comm_check)
FP8_WAITS(fp8_param_check)
FP8_WAITS(fp8_param_amax)
FP8_WAITS(fp8_param_cast)
FP8_WAITS(fp8_param_assemble)
FP8_WAITS(fp8_param_quantize)
FP8_WAITS(fp8_param_gather)
FP8_WAITS(fp8_all_reduce_max)
FP8_WAITS(fp8_all_gather)
FP8_WAITS(fp8_dispatch_plan_create)
FP8_WAITS(fp8_dispatch)
FP8_WAITS(fp8_dispatch_backward)
FP8_WAITS(fp8_combine)
FP8_WAITS(fp8_combine_backward)

%include "fp8/export.h"
%include "fp8/version.h"
%include "fp8/status.h"
%include "fp8/types.h"
%include "fp8/context.h"
%include "fp8/recipe.h"
%include "fp8/quantize.h"
%include "fp8/gemm.h"
%include "fp8/linear.h"
%include "fp8/comm.h"
%include "fp8/param.h"
%include "fp8/collectives.h"
%include "fp8/dlpack.h"

#ifdef SWIGPYTHON
%include "python/capi_calls.swg"
#endif
