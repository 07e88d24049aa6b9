# SPDX-License-Identifier: Apache-2.0

"A rank of a communicator. Every rank makes the same calls in the same order, one thread a rank."
mutable struct Comm <: Handle
    ptr::Ptr{LibFP8.fp8_comm}
    rank::Int
    size::Int
end
destroy(::Type{Comm}, p) = LibFP8.fp8_comm_destroy(p)

"""
    local_comms(n)

Ranks as threads of this process. A rank blocks until its peers arrive, and a blocked rank holds back the garbage collector: make what is needed
before, and have `GC.enable(false)` while several ranks communicate.
"""
function local_comms(n::Integer)
    all = fill(Ptr{LibFP8.fp8_comm}(C_NULL), n)
    GC.@preserve all LibFP8.fp8_comm_create_local(n, pointer(all))
    return map(Comm, all)
end

"""
    Comm(pointer)

Takes over a communicator that the low level (or `fp8_comm_create_mpi`) has made: `close` or the garbage collector destroys it.
"""
function Comm(p::Ptr{LibFP8.fp8_comm})
    rank, size, _ = LibFP8.fp8_comm_query(p)
    return finalizer(close, Comm(p, rank, size))
end

"128 bytes for [`nccl_comm`](@ref): made on one rank, handed to the others by whatever started them."
function nccl_id()
    id = zeros(UInt8, 128)
    LibFP8.fp8_comm_nccl_id(id)
    return id
end

"""
    nccl_comm(context, id, rank, size)

This rank's end of an NCCL communicator on the GPU of a CUDA context; waits for all ranks. What it moves is device memory, which `Params`
does not hold: its calls are the low level's, with `FP8.handle(comm)`. Wait for the stream (`FP8.LibFP8.fp8_comm_wait`) before `close`.
"""
function nccl_comm(context::Context, id::AbstractVector{UInt8}, rank::Integer, size::Integer)
    length(id) == 128 || throw(ArgumentError("id has $(length(id)) bytes, an NCCL id has 128"))
    return Comm(LibFP8.fp8_comm_create_nccl_rank(handle(context), Vector{UInt8}(id), rank, size))
end

mutable struct Param <: Handle
    ptr::Ptr{LibFP8.fp8_param}
end
destroy(::Type{Param}, p) = LibFP8.fp8_param_destroy(p)

"""
    Params(recipe, shapes, cuts; rank = 0)

FP8 primary weights under ZeRO-1. shapes: Julia sizes (in, out); cuts: world + 1 ascending offsets (from 0) into each weight's memory.
With collectives of one's own: `amax!`, max-reduce `p.amax`, `cast!`, gather `p.shard`, `assemble!`. With a communicator: `quantize!`, `gather!`.
"""
struct Params
    list::Vector{Param}
    shapes::Vector{Tuple{Int,Int}}
    cuts::Vector{Vector{Int64}}
    rank::Int
    layout::LibFP8.fp8_param_layout
    amax::Vector{UInt8}
    shard::Vector{UInt8}
    workspace::Vector{UInt8}
    recipe::Recipe
    context::Context
end

function Params(recipe, shapes, cuts; rank::Integer = 0, context = default_context())
    r, list = as_recipe(recipe), Param[]
    for (shape, c) in zip(shapes, cuts)
        offsets = collect(Int64, c)
        GC.@preserve offsets r begin
            config = Ref(LibFP8.fp8_param_config(rows = shape[2], cols = shape[1], cuts = pointer(offsets), world = length(offsets) - 1,
                                                 rank = rank, recipe = handle(r)))
            push!(list, finalizer(close, Param(LibFP8.fp8_param_create(handle(context), config))))
        end
    end
    layout, pointers = Ref(LibFP8.fp8_param_layout()), map(handle, list)
    GC.@preserve list pointers LibFP8.fp8_param_sizes(pointer(pointers), length(list), LibFP8.FP8_SIDE_BOTH, layout)
    l = layout[]
    return Params(list, [(Int(s[1]), Int(s[2])) for s in shapes], [collect(Int64, c) for c in cuts], rank, l, zeros(UInt8, l.amax_bytes),
                  zeros(UInt8, l.row_bytes + l.col_bytes), zeros(UInt8, l.workspace_bytes), r, context)
end

Base.close(p::Params) = foreach(close, p.list)

"The range of weight i's memory, from 1, that this rank owns."
owned(p::Params, i::Integer) = p.cuts[i][p.rank+1]+1:p.cuts[i][p.rank+2]

"Memory for the gathered weights."
full_weights(p::Params, which::Symbol = :both) =
    [QTensor(p.recipe, :weight, s[2], s[1], which; copy = true, context = p.context) for s in p.shapes]

function with_args(call, p::Params; masters = nothing, full = nothing, gathered = nothing, sides::Symbol = :both)
    for (name, given) in (("masters", masters), ("full weights", full))
        given === nothing || length(given) == length(p.list) ||
            throw(ArgumentError("a list of $(length(p.list)) weights was given $(length(given)) $name"))
    end
    pointers = map(handle, p.list)
    views = masters === nothing ? Base.RefValue{LibFP8.fp8_tensor}[] : [Ref(tensor(m)) for m in masters]
    refs = full === nothing ? Base.RefValue{LibFP8.fp8_qtensor}[] : [ref_of(q) for q in full]
    view_pointers, ref_pointers = map(address, views), map(address, refs)
    buffer(a) = Ref(LibFP8.fp8_buffer(Ptr{Cvoid}(pointer(a)), sizeof(a)))
    amax, shard, workspace = buffer(p.amax), buffer(p.shard), buffer(p.workspace)
    all = gathered === nothing ? nothing : buffer(gathered)
    GC.@preserve p pointers masters full gathered views refs view_pointers ref_pointers amax shard workspace all begin
        args = Ref(LibFP8.fp8_param_args(params = pointer(pointers), masters = masters === nothing ? C_NULL : pointer(view_pointers),
                                         full = full === nothing ? C_NULL : pointer(ref_pointers), amax = address(amax),
                                         shard = address(shard), gathered = maybe(all), workspace = address(workspace),
                                         count = length(p.list), sides = known(SIDES, sides, "sides")))
        call(handle(p.context), args)
    end
    return p
end

"Masters to this rank's part of `p.amax`: now max-reduce it over the ranks."
amax!(p::Params, masters) = with_args((c, a) -> LibFP8.fp8_param_amax(c, a, C_NULL), p; masters = masters)
"Masters and the reduced `p.amax` to `p.shard`: now gather it."
cast!(p::Params, masters) = with_args((c, a) -> LibFP8.fp8_param_cast(c, a, C_NULL), p; masters = masters)
"All ranks' shards, in rank order, to full weights."
assemble!(full, p::Params, gathered; sides::Symbol = :both) =
    with_args((c, a) -> LibFP8.fp8_param_assemble(c, a, C_NULL), p; full = full, gathered = gathered, sides = sides)
"Masters to amaxes and shards, with one all-reduce(max)."
quantize!(p::Params, comm::Comm, masters) =
    with_args((c, a) -> LibFP8.fp8_param_quantize(c, handle(comm), a, C_NULL), p; masters = masters)
"Shards to full weights, with one all-gather."
gather!(full, p::Params, comm::Comm; sides::Symbol = :both) =
    with_args((c, a) -> LibFP8.fp8_param_gather(c, handle(comm), a, C_NULL), p; full = full, sides = sides)
