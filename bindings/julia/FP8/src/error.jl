# SPDX-License-Identifier: Apache-2.0

"""
    FP8Error(status, message, native_code)

A call of libfp8 failed. The message names function, tensor, dimension, value and rule.
"""
struct FP8Error <: Exception
    status::Int32
    message::String
    native_code::Int64
end
Base.showerror(io::IO, e::FP8Error) = print(io, "FP8Error (status ", e.status, "): ", e.message)

"Throws the calling thread's last error unless the status is FP8_OK."
function check(status::Int32)
    status == 0 && return nothing
    e = Ref(fp8_error())
    fp8_last_error(e)
    text = e[].message == C_NULL ? fp8_status_name(status) : e[].message
    throw(FP8Error(status, unsafe_string(text), e[].native_code))
end
