# SPDX-License-Identifier: Apache-2.0
# Element types: plain bits with conversions. On arrays, reinterpret(UInt8, codes) is free.

"An FP8 number with 4 exponent bits and no infinity (OCP E4M3, \"fn\")."
primitive type E4M3 <: AbstractFloat 8 end
"An FP8 number with 5 exponent bits (OCP E5M2)."
primitive type E5M2 <: AbstractFloat 8 end
"A power-of-two scale, 2^(code - 127)."
primitive type E8M0 <: AbstractFloat 8 end
"A bfloat16 number, for Julia versions and packages without one."
primitive type BFloat16 <: AbstractFloat 16 end

const Small = Union{E4M3,E5M2,E8M0}
bits(x::Small) = reinterpret(UInt8, x)
bits(x::BFloat16) = reinterpret(UInt16, x)

Base.Float32(x::BFloat16) = reinterpret(Float32, UInt32(bits(x)) << 16)
function BFloat16(x::Float32)
    u = reinterpret(UInt32, x)
    isnan(x) && return reinterpret(BFloat16, UInt16((u >> 16) | 0x0040))
    return reinterpret(BFloat16, UInt16((u + 0x7fff + ((u >> 16) & 1)) >> 16))
end

function Base.Float32(x::E4M3)
    u = bits(x)
    s, e, m = (u & 0x80) == 0 ? 1.0f0 : -1.0f0, Int((u >> 3) & 0x0f), Float32(u & 0x07)
    (u & 0x7f) == 0x7f && return NaN32
    return e == 0 ? s * m * 2.0f0^-9 : s * (1 + m / 8) * 2.0f0^(e - 7)
end
function Base.Float32(x::E5M2)
    u = bits(x)
    s, e, m = (u & 0x80) == 0 ? 1.0f0 : -1.0f0, Int((u >> 2) & 0x1f), Float32(u & 0x03)
    e == 31 && return m == 0 ? s * Inf32 : NaN32
    return e == 0 ? s * m * 2.0f0^-16 : s * (1 + m / 4) * 2.0f0^(e - 15)
end
Base.Float32(x::E8M0) = bits(x) == 0xff ? NaN32 : Float32(2.0^(Int(bits(x)) - 127))

# rounds to nearest even, saturates; NaN stays NaN
function narrow(x::Float32, mantissa::Int, bias::Int, top::Float32)
    isnan(x) && return 0x7f
    sign = signbit(x) ? 0x80 : 0x00
    a = min(abs(x), top)
    e = a == 0 ? 1 - bias : max(exponent(a), 1 - bias)
    q = round(Int, Float64(a) * 2.0^(mantissa - e), RoundNearest)
    return sign | UInt8(q >= 1 << mantissa ? ((e + bias) << mantissa) + (q - (1 << mantissa)) : q)
end
E4M3(x::Float32) = reinterpret(E4M3, narrow(x, 3, 7, 448.0f0))
E5M2(x::Float32) = reinterpret(E5M2, narrow(x, 2, 15, 57344.0f0))

for T in (:E4M3, :E5M2, :BFloat16)
    @eval begin
        $T(x::Real) = $T(Float32(x))
        Base.promote_rule(::Type{$T}, ::Type{Float32}) = Float32
        Base.promote_rule(::Type{$T}, ::Type{Float64}) = Float64
    end
end
for T in (:E4M3, :E5M2, :E8M0, :BFloat16)
    @eval begin
        Base.Float64(x::$T) = Float64(Float32(x))
        Base.show(io::IO, x::$T) = print(io, $(string(T)), "(", Float32(x), ")")
        Base.isnan(x::$T) = isnan(Float32(x))
        Base.zero(::Type{$T}) = reinterpret($T, zero(typeof(bits(reinterpret($T, $(T == :BFloat16 ? 0x0000 : 0x00))))))
        Base.:(==)(x::$T, y::$T) = Float32(x) == Float32(y)
        Base.isless(x::$T, y::$T) = isless(Float32(x), Float32(y))
    end
end

"""
    FP8.dtype(T)

The library's dtype of an element type. Packages with their own FP8 or BF16 types add a method.
"""
dtype(::Type{T}) where {T} = throw(ArgumentError("libfp8 has no element type $T"))
const DTYPES = [Float32 => LibFP8.FP8_DTYPE_F32, Float16 => LibFP8.FP8_DTYPE_F16, BFloat16 => LibFP8.FP8_DTYPE_BF16,
                E4M3 => LibFP8.FP8_DTYPE_E4M3, E5M2 => LibFP8.FP8_DTYPE_E5M2, E8M0 => LibFP8.FP8_DTYPE_E8M0,
                UInt8 => LibFP8.FP8_DTYPE_U8, Int32 => LibFP8.FP8_DTYPE_I32, Int64 => LibFP8.FP8_DTYPE_I64,
                UInt64 => LibFP8.FP8_DTYPE_U64, Float64 => LibFP8.FP8_DTYPE_F64]
for (T, code) in DTYPES
    @eval dtype(::Type{$T}) = $code
end
if isdefined(Core, :BFloat16)
    dtype(::Type{Core.BFloat16}) = LibFP8.FP8_DTYPE_BF16
end
eltype_of(code) = first(DTYPES[findfirst(p -> last(p) == code, DTYPES)])

"The address of a Ref's contents; keep the Ref with GC.@preserve."
address(r::Ref{T}) where {T} = Base.unsafe_convert(Ptr{T}, r)

"""
    FP8.tensor(a)

The C view of an array, dimensions reversed. Arrays and strided views of them; `FP8.pointer_of` is the hook for device arrays.
"""
function tensor(a::AbstractArray{T,N}) where {T,N}
    N <= 4 || throw(ArgumentError("an array of $N dimensions; at most 4 are supported"))
    p = pointer_of(a)
    st = strides(a)
    shape = ntuple(i -> i <= N ? Int64(size(a, N + 1 - i)) : Int64(0), 4)
    stride = ntuple(i -> i <= N ? Int64(st[N+1-i]) : Int64(0), 4)
    return LibFP8.fp8_tensor(p, dtype(T), N, shape, stride)
end

"The address of an array's first element. Lazy wrappers are refused: nothing is transposed in secret."
pointer_of(a::Union{Array,SubArray{<:Any,<:Any,<:Array}}) = Ptr{Cvoid}(pointer(a))
pointer_of(a::Base.ReshapedArray{<:Any,<:Any,<:Array}) = Ptr{Cvoid}(pointer(parent(a)))
pointer_of(a::AbstractArray) =
    throw(ArgumentError("$(typeof(a)) is not an Array or a view of one: copy it first (no hidden transposes)"))
