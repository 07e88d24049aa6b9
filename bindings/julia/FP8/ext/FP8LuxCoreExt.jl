# SPDX-License-Identifier: Apache-2.0
# UNTESTED. A Lux layer: weight (in, out), which is the transpose of Lux.Dense's. Wants FP8ChainRulesCoreExt for gradients.
module FP8LuxCoreExt

using FP8, LuxCore, Random

struct FP8Dense <: LuxCore.AbstractLuxLayer
    linear::FP8.Linear
end
FP8Dense((inputs, outputs)::Pair; recipe = "block") = FP8Dense(FP8.Linear(inputs, outputs; recipe = recipe))

function LuxCore.initialparameters(rng::AbstractRNG, d::FP8Dense)
    n, m = d.linear.const_in, d.linear.const_out
    return (weight = randn(rng, Float32, n, m) ./ sqrt(Float32(n)), bias = zeros(Float32, m))
end
LuxCore.initialstates(::AbstractRNG, ::FP8Dense) = NamedTuple()

function (d::FP8Dense)(x, ps, st)
    rules = Base.get_extension(FP8, :FP8ChainRulesCoreExt)
    y = rules === nothing ? first(FP8.forward(d.linear, x, FP8.quantize_weight(d.linear, ps.weight), ps.bias; save = false)) :
        rules.fp8_linear(d.linear, x, ps.weight, ps.bias)
    return y, st
end

end
