# SPDX-License-Identifier: Apache-2.0

"""
    Linear(in, out; recipe = "block", eltype = BFloat16)

A linear layer: configuration and plans; weights and activations are the caller's. x (in, tokens), w (in, out), y (out, tokens).
"""
mutable struct Linear <: Handle
    ptr::Ptr{LibFP8.fp8_linear}
    const_in::Int
    const_out::Int
    eltype::DataType
    recipe::Recipe
    context::Context
    function Linear(inputs::Integer, outputs::Integer; recipe = "block", eltype = BFloat16, context = default_context())
        r = as_recipe(recipe)
        config = Ref(LibFP8.fp8_linear_config(in_features = inputs, out_features = outputs, recipe = handle(r), input_dtype = dtype(eltype),
                                              output_dtype = dtype(eltype)))
        p = GC.@preserve r LibFP8.fp8_linear_create(handle(context), config)
        return finalizer(close, new(p, inputs, outputs, eltype, r, context))
    end
end
destroy(::Type{Linear}, p) = LibFP8.fp8_linear_destroy(p)
Base.show(io::IO, l::Linear) = print(io, "Linear(", l.const_in, " => ", l.const_out, ", ", l.recipe, ")")

"The quantized weight, w (in, out): once an optimizer step."
function quantize_weight(l::Linear, w::AbstractMatrix; sides::Symbol = :both)
    size(w) == (l.const_in, l.const_out) ||
        throw(DimensionMismatch("w is $(size(w)), this linear wants (in $(l.const_in), out $(l.const_out))"))
    return quantize(w; recipe = l.recipe, role = :weight, sides = sides, copy = eltype(w) == Float32, context = l.context)
end

"""
    forward(linear, x, qw, bias = nothing; save = true) -> (y, saved)

`saved` is for [`backward`](@ref): the FP8 column side of x; nothing without `save`.
"""
function forward(l::Linear, x::AbstractArray, qw::QTensor, bias = nothing; save::Bool = true)
    y = Array{l.eltype}(undef, l.const_out, size(x)[2:end]...)
    saved = nothing
    if save
        ref = Ref(LibFP8.fp8_qtensor())
        LibFP8.fp8_linear_describe(handle(l), LibFP8.FP8_ROLE_ACTIVATION, rows_of(x), LibFP8.FP8_SIDE_COL, ref)
        saved = place(ref, LibFP8.FP8_SIDE_COL, l.recipe, l.context, x)
    end
    xt, yt, bt, wr = Ref(tensor(x)), Ref(tensor(y)), tensor_ref(bias), ref_of(qw)
    sr = saved === nothing ? nothing : saved.ref
    GC.@preserve l x y qw bias saved xt yt bt wr sr begin
        args = Ref(LibFP8.fp8_linear_forward_args(x = address(xt), w = address(wr), bias = maybe(bt), y = address(yt), saved_x = maybe(sr)))
        LibFP8.fp8_linear_forward(handle(l), args, C_NULL)
    end
    return y, saved
end

"""
    backward(linear, dy, qw, saved; dx = true, dw = true, dbias = false, accumulate = false) -> (dx, dw, dbias)

dw: Float32 (in, out); give an array to have it filled, or added to with `accumulate` (a dw that was not given begins at zero).
`dx = false` and `dw = nothing` (or `false`) leave a gradient out; without dw, `saved` may be `nothing`.
"""
function backward(l::Linear, dy::AbstractArray, qw::QTensor, saved::Union{QTensor,Nothing}; dx::Bool = true, dbias::Bool = false,
                  dw::Union{AbstractMatrix,Bool,Nothing} = true, accumulate::Bool = false)
    gx = dx ? Array{l.eltype}(undef, l.const_in, size(dy)[2:end]...) : nothing
    gw = dw isa AbstractMatrix ? dw : dw !== true ? nothing : accumulate ? zeros(Float32, l.const_in, l.const_out) :
         Matrix{Float32}(undef, l.const_in, l.const_out)
    gb = dbias ? Vector{Float32}(undef, l.const_out) : nothing
    # w is dx's operand, saved_x dw's: one goes with the other
    wr, sr = dx ? ref_of(qw) : nothing, gw === nothing || saved === nothing ? nothing : ref_of(saved)
    dyt, xt, wt, bt = Ref(tensor(dy)), tensor_ref(gx), tensor_ref(gw), tensor_ref(gb)
    GC.@preserve l dy qw saved gx gb gw dyt xt wt bt wr sr begin
        args = Ref(LibFP8.fp8_linear_backward_args(dy = address(dyt), w = maybe(wr), saved_x = maybe(sr), dx = maybe(xt), dw = maybe(wt),
                                                   dbias = maybe(bt),
                                                   flags = accumulate ? LibFP8.FP8_LINEAR_ACCUMULATE_DW : UInt32(0)))
        LibFP8.fp8_linear_backward(handle(l), args, C_NULL)
    end
    return gx, gw, gb
end
