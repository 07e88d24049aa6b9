# SPDX-License-Identifier: Apache-2.0

"""
    Recipe("block"; fields...)

How a linear layer's tensors become FP8: "none" (BF16), "tensor", "row", "block", "mx", "mx_w2d", or a name as other projects have ("mxfp8").
A name may be a symbol, also where a `recipe` is an argument: `:block`.
Keywords replace single fields of the C struct, as integers: `Recipe("block"; scale_rule = FP8.LibFP8.FP8_SCALE_FP32)`.
"""
mutable struct Recipe <: Handle
    ptr::Ptr{LibFP8.fp8_recipe}
    function Recipe(text::AbstractString = "block"; fields...)
        r = finalizer(close, new(LibFP8.fp8_recipe_from_string(String(text))))
        isempty(fields) && return r
        config = Ref(LibFP8.fp8_recipe_config())
        LibFP8.fp8_recipe_query(handle(r), config)
        names = fieldnames(LibFP8.fp8_recipe_config)
        for f in keys(fields)
            f in names || throw(ArgumentError("a recipe has no field $f; it has $(join(names[2:end], ", "))"))
        end
        changed = Ref(LibFP8.fp8_recipe_config((haskey(fields, n) ? fields[n] : getfield(config[], n) for n in names)...))
        close(r)
        return finalizer(close, new(LibFP8.fp8_recipe_create(changed)))
    end
end
Recipe(name::Symbol; fields...) = Recipe(String(name); fields...)
destroy(::Type{Recipe}, p) = LibFP8.fp8_recipe_destroy(p)
Base.string(r::Recipe) = LibFP8.fp8_recipe_to_string(handle(r))
Base.show(io::IO, r::Recipe) = print(io, isopen(r) ? "Recipe(\"$(string(r))\")" : "Recipe(closed)")
Base.:(==)(a::Recipe, b::Recipe) = string(a) == string(b)
Base.hash(r::Recipe, h::UInt) = hash(string(r), h)
as_recipe(r::Recipe) = r
as_recipe(text::Union{AbstractString,Symbol}) = Recipe(text)
