# SPDX-License-Identifier: Apache-2.0
# UNTESTED. CUDA.jl arrays as arguments of FP8's functions. Use a Context(backend = :cuda, device = CUDA.deviceid()); calls run on the
# device's default stream: synchronize the task's stream before and after, or call FP8.LibFP8 with stream_handle().
module FP8CUDAExt

using FP8, CUDA

FP8.pointer_of(a::CUDA.StridedCuArray) = Ptr{Cvoid}(UInt(pointer(a)))

"The calling task's stream, for the low level's `stream` arguments."
stream_handle() = Ptr{Cvoid}(UInt(Base.unsafe_convert(CUDA.CUstream, CUDA.stream())))

end
