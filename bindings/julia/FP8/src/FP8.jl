# SPDX-License-Identifier: Apache-2.0
"""
FP8 training for Julia: libfp8's quantizers, products and linear layers.

    using FP8
    linear = Linear(4096, 16384; recipe = "block")
    qw = quantize_weight(linear, w)              # w (in, out), once an optimizer step
    y, saved = forward(linear, x, qw)            # x (in, tokens) -> y (out, tokens)
    dx, dw, _ = backward(linear, dy, qw, saved)

# Layout

Julia's arrays are column-major, libfp8's matrices row-major: a Julia array of size (m, n) *is* the C matrix [n, m], without a copy.
So sizes are the C API's, reversed: an activation is (features, tokens), a weight (in, out), codes of a row side (cols, rows) in C's words.
Nothing is ever transposed in secret; lazy wrappers (adjoint, PermutedDimsArray) are refused: copy them, or keep weights as (in, out).

# Threads

Contexts, recipes and linears may be used from several threads; a communicator belongs to one. A call into the library holds back Julia's
garbage collector in all threads while it runs.
"""
module FP8

using Libdl

include("LibFP8.jl")
using .LibFP8
using .LibFP8: FP8Error, check

export FP8Error, Context, Recipe, QTensor, Linear, Params, Comm, E4M3, E5M2, E8M0, BFloat16
export quantize, dequantize, quantize!, amax, cast, gemm, quantize_weight, forward, backward, sides, measure
export local_comms, nccl_id, nccl_comm, amax!, cast!, assemble!, gather!, owned, full_weights, default_context, explain, counters

include("types.jl")
include("context.jl")
include("recipe.jl")
include("qtensor.jl")
include("linear.jl")
include("param.jl")

function open_library(name)
    hint = "set the environment variable FP8_LIBRARY to the path of libfp8.so.0"
    handle = try
        Libdl.dlopen(name)
    catch e
        error("libfp8 was not loaded ($(sprint(showerror, e))): $hint")
    end
    Libdl.dlsym(handle, :fp8_version; throw_error = false) === nothing && error("$name is another library, it has no fp8_version: $hint")
    # the low level finds an open library by its name only
    Libdl.dlopen(LibFP8.lib; throw_error = false) === nothing && error("$name has another soname than $(LibFP8.lib): $hint")
    return handle
end

function __init__()
    # opened first by path, the library is found by its name afterwards
    chosen = get(ENV, "FP8_LIBRARY", "")
    open_library(isempty(chosen) ? LibFP8.lib : chosen)
    LibFP8.check_layout()
    version = LibFP8.fp8_version()
    version ÷ 10000 == 0 || error("FP8.jl is for libfp8 0.x, the library found is $(version ÷ 10000).x (FP8_LIBRARY is \"$chosen\")")
    return nothing
end

end # module
