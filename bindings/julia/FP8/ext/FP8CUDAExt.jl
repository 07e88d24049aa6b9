# SPDX-License-Identifier: Apache-2.0
# UNTESTED. CUDA.jl arrays as views (FP8.tensor) for FP8.LibFP8, with a Context(backend = :cuda, device = CUDA.deviceid()) and
# stream_handle(). FP8's own functions make Julia arrays, which a GPU cannot read.
module FP8CUDAExt

using FP8, CUDA

FP8.pointer_of(a::CUDA.StridedCuArray) = Ptr{Cvoid}(UInt(pointer(a)))

"The calling task's stream, for the low level's `stream` arguments."
stream_handle() = Ptr{Cvoid}(UInt(Base.unsafe_convert(CUDA.CUstream, CUDA.stream())))

end
