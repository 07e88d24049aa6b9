# SPDX-License-Identifier: Apache-2.0
# Fashion-MNIST with an MLP in FP8, each recipe paired with BF16: same start, same batches.
#
# FP8_LIBRARY names the library that was built or installed:
#
#   FP8_LIBRARY=build/release/lib/libfp8.so.0 JULIA_LOAD_PATH=bindings/julia:@stdlib julia examples/julia/mlp.jl [steps [recipes [folder]]]
#
# Arrays are (features, tokens); weights are (in, out).
using FP8
using Random

const STEPS = length(ARGS) > 0 ? parse(Int, ARGS[1]) : 600
const RECIPES = length(ARGS) > 1 ? split(ARGS[2], ",") : ["tensor", "row", "block", "mx"]
foreach(Recipe, RECIPES)  # a wrong name ends here
const FOLDER = length(ARGS) > 2 ? ARGS[3] : "/usr/share/datasets/fashion-mnist"
const WIDTHS = [784, 256, 256, 10]
const BATCH = 128

unpack(name, header) = read(`gzip -dc $(joinpath(FOLDER, name * ".gz"))`)[header+1:end]
function load(kind)
    pixels, labels = unpack("$kind-images-idx3-ubyte", 16), unpack("$kind-labels-idx1-ubyte", 8)
    return (Float32.(reshape(pixels, 784, :)) ./ 255 .- 0.286f0) ./ 0.353f0, Int.(labels) .+ 1
end

mutable struct Layer
    linear::Linear
    w::Matrix{Float32}  # the master
    b::Vector{Float32}
    mw::Matrix{Float32}
    mb::Vector{Float32}
end
# hidden layers follow the recipe, the last one stays in BF16, as is the habit
function network(recipe, rng)
    return map(1:length(WIDTHS)-1) do i
        inputs, outputs = WIDTHS[i], WIDTHS[i+1]
        w = (2 .* rand(rng, Float32, inputs, outputs) .- 1) .* sqrt(6.0f0 / inputs)
        linear = Linear(inputs, outputs; recipe = i == length(WIDTHS) - 1 ? "none" : recipe)
        Layer(linear, w, zeros(Float32, outputs), zero(w), zeros(Float32, outputs))
    end
end

function run(layers, weights, x)
    x, kept = BFloat16.(x), []
    for (i, l) in enumerate(layers)
        y, saved = forward(l.linear, x, weights[i], l.b)
        positive = Float32.(y) .> 0
        push!(kept, (saved, positive))
        x = i < length(layers) ? BFloat16.(Float32.(y) .* positive) : y
    end
    return Float32.(x), kept
end

function cross_entropy(logits, labels)
    shifted = logits .- maximum(logits, dims = 1)
    p = exp.(shifted) ./ sum(exp.(shifted), dims = 1)
    n = length(labels)
    loss = -sum(log(p[labels[j], j]) for j in 1:n) / n
    foreach(j -> p[labels[j], j] -= 1, 1:n)
    return loss, p ./ n
end

function step!(layers, x, labels, rate)
    weights = [quantize_weight(l.linear, l.w) for l in layers]  # once a step
    logits, kept = run(layers, weights, x)
    loss, dy = cross_entropy(logits, labels)
    for i in length(layers):-1:1
        l, (saved, positive) = layers[i], kept[i]
        i < length(layers) && (dy = dy .* positive)
        dx, dw, db = backward(l.linear, BFloat16.(dy), weights[i], saved; dbias = true)
        l.mw .= 0.9f0 .* l.mw .+ dw
        l.mb .= 0.9f0 .* l.mb .+ db
        l.w .-= rate .* l.mw
        l.b .-= rate .* l.mb
        dy = Float32.(dx)
    end
    return loss
end

function accuracy(layers, images, labels)
    weights = [quantize_weight(l.linear, l.w) for l in layers]
    logits, _ = run(layers, weights, images)
    return count(j -> argmax(view(logits, :, j)) == labels[j], 1:length(labels)) / length(labels)
end

function train(recipe, images, labels, tests, answers)
    rng = MersenneTwister(1)
    layers = network(recipe, rng)
    for i in 1:STEPS
        pick = rand(rng, 1:length(labels), BATCH)
        step!(layers, images[:, pick], labels[pick], 0.02f0 * (1 - (i - 1) / Float32(STEPS)))
    end
    return accuracy(layers, tests, answers)
end

function main()
    images, labels = load("train")
    tests, answers = load("t10k")
    plain = 0.0
    for recipe in ["none"; RECIPES]
        seconds = @elapsed a = train(recipe, images, labels, tests, answers)
        recipe == "none" && (plain = a)
        println(rpad(recipe, 8), " accuracy ", round(100a, digits = 2), " %  gap to BF16 ", round(100(a - plain), digits = 2), " points  ",
                round(seconds, digits = 1), " s")
        STEPS >= 100 && (a < 0.7 || abs(a - plain) > 0.03) && error("$recipe: accuracy $a, BF16 has $plain")
    end
end

main()
