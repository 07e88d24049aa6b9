# SPDX-License-Identifier: Apache-2.0
# UNTESTED. fp8_linear(linear, x, w, b): w (in, out) is quantized in every call; its gradient is Float32.
module FP8ChainRulesCoreExt

using FP8, ChainRulesCore

fp8_linear(l::Linear, x, w, b) = first(forward(l, x, quantize_weight(l, w), b; save = false))

function ChainRulesCore.rrule(::typeof(fp8_linear), l::Linear, x, w, b)
    qw = quantize_weight(l, w)
    y, saved = forward(l, x, qw, b)
    function pullback(dy)
        dx, dw, db = backward(l, l.eltype.(unthunk(dy)), qw, saved; dbias = b !== nothing)
        return NoTangent(), NoTangent(), dx, dw, b === nothing ? NoTangent() : db
    end
    return y, pullback
end

end
