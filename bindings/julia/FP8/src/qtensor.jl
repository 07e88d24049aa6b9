# SPDX-License-Identifier: Apache-2.0

const ROLES = (activation = LibFP8.FP8_ROLE_ACTIVATION, weight = LibFP8.FP8_ROLE_WEIGHT, gradient = LibFP8.FP8_ROLE_GRADIENT)
const SIDES = (row = LibFP8.FP8_SIDE_ROW, col = LibFP8.FP8_SIDE_COL, both = LibFP8.FP8_SIDE_BOTH)
const SIDE = (row = SIDES.row, col = SIDES.col)
maybe(r) = r === nothing ? C_NULL : address(r)
tensor_ref(::Nothing) = nothing
tensor_ref(a) = Ref(tensor(a))

"""
A quantized matrix with memory of its own. Of a Julia matrix (cols, rows): `codes(q, :row)` is (cols, rows), `codes(q, :col)` (rows, cols);
`scales(q, side)` has C's shape reversed. A side of recipe "none" is a view of the array that was quantized. `close` gives the memory to the
garbage collector before the matrix itself is out of reach.
"""
mutable struct QTensor
    ref::Base.RefValue{LibFP8.fp8_qtensor}
    memory::Vector{UInt8}
    source::Any
    recipe::Recipe
    context::Context
    open::Bool
    QTensor(ref, memory, source, recipe, context) = new(ref, memory, source, recipe, context, true)
end
function Base.close(q::QTensor)
    q.open, q.memory, q.source, q.ref[] = false, UInt8[], nothing, LibFP8.fp8_qtensor()
    return nothing
end
Base.isopen(q::QTensor) = q.open
ref_of(q::QTensor) = q.open ? q.ref : throw(ArgumentError("QTensor is closed"))

function place(ref, which, recipe, context, source)
    bytes = LibFP8.fp8_qtensor_bytes(ref, which)
    memory = Vector{UInt8}(undef, bytes)
    if bytes > 0
        GC.@preserve memory LibFP8.fp8_qtensor_place(ref, which, Ref(LibFP8.fp8_buffer(Ptr{Cvoid}(pointer(memory)), bytes)))
    end
    return QTensor(ref, memory, source, recipe, context)
end

"Memory for a matrix of this role; `rows` and `cols` are C's."
function QTensor(recipe, role::Symbol, rows::Integer, cols::Integer, which::Symbol = :both; copy::Bool = false, context = default_context(),
                 source = nothing)
    r = as_recipe(recipe)
    ref = Ref(LibFP8.fp8_qtensor())
    wanted = known(SIDES, which, "sides") | (copy ? LibFP8.FP8_SIDE_COPY : UInt32(0))
    LibFP8.fp8_recipe_describe(handle(r), handle(context), known(ROLES, role, "role"), rows, cols, wanted, ref)
    return place(ref, known(SIDES, which, "sides"), r, context, source)
end

rows_of(a::AbstractArray) = length(a) ÷ max(size(a, 1), 1)
Base.size(q::QTensor) = (Int(ref_of(q)[].cols), Int(q.ref[].rows))

"Which sides it holds: :row, :col or :both."
sides(q::QTensor) = ref_of(q)[].row_kind != 0 && q.ref[].col_kind != 0 ? :both : q.ref[].row_kind != 0 ? :row : :col
Base.show(io::IO, q::QTensor) =
    isopen(q) ? print(io, "QTensor(", size(q, 1), " x ", size(q, 2), ", ", sides(q), ", ", length(q.memory), " bytes)") :
    print(io, "QTensor(closed)")
Base.size(q::QTensor, i::Integer) = size(q)[i]

# a view of a part, C's dimensions reversed; padding between them is skipped by a SubArray
function part(q::QTensor, t::LibFP8.fp8_tensor)
    T, n = eltype_of(t.dtype), Int(t.ndim)
    offset = Int(UInt(t.data) - UInt(pointer(q.memory)))
    (isempty(q.memory) || !(0 <= offset < length(q.memory))) && throw(ArgumentError("this side is a view of the source array"))
    data = reinterpret(T, view(q.memory, offset+1:length(q.memory)-(length(q.memory)-offset)%sizeof(T)))
    shape, stride = t.shape[1:n], t.stride[1:n]
    return [data[1+sum((i .- 1) .* reverse(stride))] for i in Iterators.product(map(k -> 1:Int(k), reverse(shape))...)]
end
"The codes of a side (a copy)."
codes(q::QTensor, side::Symbol = :row) = part(q, known((row = ref_of(q)[].row, col = q.ref[].col), side, "side"))
"The scales of a side (a copy): value = code * scale."
scales(q::QTensor, side::Symbol = :row) = part(q, known((row = ref_of(q)[].row_scale, col = q.ref[].col_scale), side, "side"))

"""
    quantize(x; recipe = "block", role = :activation, sides = :both, amax = nothing, stats = nothing)

Quantizes a matrix (features, tokens); trailing dimensions are tokens. amax: Float32 arrays to be filled, or with `given = true` read.
stats: a Vector{UInt64}(8) that is added to: count, nan, inf, nonzero, underflow, saturated.
"""
function quantize(x::AbstractArray; recipe = "block", role::Symbol = :activation, sides::Symbol = :both, copy::Bool = false,
                  context = default_context(), kw...)
    q = QTensor(recipe, role, rows_of(x), size(x, 1), sides; copy = copy, context = context, source = x)
    return quantize!(q, x; role = role, kw...)
end

"As [`quantize`](@ref), into an earlier result."
function quantize!(q::QTensor, x::AbstractArray; role::Symbol = :activation, amax = nothing, amax_col = nothing, given::Bool = false,
                   stats = nothing, only_amax::Bool = false)
    xt, at, ct, st = Ref(tensor(x)), tensor_ref(amax), tensor_ref(amax_col), tensor_ref(stats)
    ref = ref_of(q)
    GC.@preserve x amax amax_col stats q ref xt at ct st begin
        args = Ref(LibFP8.fp8_quantize_args(x = address(xt), q = address(ref), amax = maybe(at), amax_col = maybe(ct), stats = maybe(st),
                                            role = known(ROLES, role, "role"), flags = given ? LibFP8.FP8_AMAX_GIVEN : UInt32(0)))
        call = only_amax ? LibFP8.fp8_amax : LibFP8.fp8_quantize
        call(handle(q.context), handle(q.recipe), args, C_NULL)
    end
    return q
end

"""
    dequantize(q, T = Float32; side)

The values, of the size of the matrix that was quantized, from either side.
"""
function dequantize(q::QTensor, ::Type{T} = Float32; side::Symbol = sides(q) == :col ? :col : :row) where {T}
    x = Matrix{T}(undef, size(q))
    xt, ref = Ref(tensor(x)), ref_of(q)
    GC.@preserve x q ref xt LibFP8.fp8_dequantize(handle(q.context), ref, known(SIDE, side, "side"), xt, C_NULL)
    return x
end

"The amax of each scale of the row (or `side`) side: Float32, the scales' shape reversed."
function amax(x::AbstractArray; recipe = "tensor", role::Symbol = :activation, side::Symbol = :row, context = default_context())
    known(SIDE, side, "side")
    q = QTensor(recipe, role, rows_of(x), size(x, 1), side; context = context, source = x)
    t = side == :row ? q.ref[].row_scale : q.ref[].col_scale
    out = zeros(Float32, reverse(t.shape[1:t.ndim])...)
    quantize!(q, x; role = role, only_amax = true, (side == :row ? (amax = out,) : (amax_col = out,))...)
    return out
end

"Elementwise conversion; FP8 saturates unless told otherwise."
function cast(::Type{T}, x::AbstractArray; scale = nothing, saturate::Bool = true, context = default_context()) where {T}
    y = Array{T}(undef, size(x))
    xt, st, yt = Ref(tensor(x)), tensor_ref(scale), Ref(tensor(y))
    GC.@preserve x y scale st LibFP8.fp8_cast(handle(context), xt, maybe(st), saturate, yt, C_NULL)
    return y
end

"""
    gemm(a, b, a_side = :row, b_side = :row; bias, eltype = BFloat16)

C's a . b^T (+ bias), as the Julia matrix (n, m): fprop `gemm(x, w)`, dgrad `gemm(dy, w, :row, :col)`, wgrad `gemm(dy, x, :col, :col)`.
"""
function gemm(a::QTensor, b::QTensor, a_side::Symbol = :row, b_side::Symbol = :row; bias = nothing, eltype = BFloat16)
    m = a_side == :row ? ref_of(a)[].rows : a.ref[].cols
    n = b_side == :row ? ref_of(b)[].rows : b.ref[].cols
    d = Matrix{eltype}(undef, n, m)
    dt, bt, ar, br = Ref(tensor(d)), tensor_ref(bias), ref_of(a), ref_of(b)
    GC.@preserve a b d bias dt bt ar br begin
        args = Ref(LibFP8.fp8_gemm_args(a = address(ar), b = address(br), bias = maybe(bt), d = address(dt), a_side = known(SIDE, a_side, "a_side"),
                                        b_side = known(SIDE, b_side, "b_side")))
        LibFP8.fp8_gemm(handle(a.context), args, C_NULL)
    end
    return d
end

"How far q is from x: the sums x.x, e.e, x.x' and max|e|, and the signal-to-noise ratio in dB."
function measure(x::AbstractArray, q::QTensor; side::Symbol = :row)
    sums = zeros(Float64, 4)
    xt, st, ref = Ref(tensor(x)), Ref(tensor(sums)), ref_of(q)
    GC.@preserve x q sums LibFP8.fp8_measure(handle(q.context), xt, ref, known(SIDE, side, "side"), st, C_NULL, C_NULL)
    return (xx = sums[1], ee = sums[2], xy = sums[3], max_error = sums[4], snr_db = 10 * log10(sums[1] / sums[2]))
end
