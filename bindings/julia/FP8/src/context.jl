# SPDX-License-Identifier: Apache-2.0

# A handle: freed by close or by the garbage collector, once. Finalizers may run on any thread; the library allows that.
abstract type Handle end
function Base.close(h::Handle)
    p, h.ptr = h.ptr, C_NULL
    p == C_NULL || destroy(typeof(h), p)
    return nothing
end
Base.isopen(h::Handle) = h.ptr != C_NULL
function handle(h::Handle)
    h.ptr == C_NULL && throw(ArgumentError("$(typeof(h)) is closed"))
    return h.ptr
end

# known(SIDES, :x, "sides"): the value of a name, or an error that says which there are
known(table::NamedTuple, name::Symbol, argument) =
    haskey(table, name) ? table[name] : throw(ArgumentError("$argument is :$name, known are $(join(map(n -> ":$n", keys(table)), ", "))"))

"""
    Context(; backend = :auto, device = 0, threads = 0, flags = ())

A device with its allocator and threads. backend: `:auto` (CUDA if there is one), `:cpu`, `:cuda`; flags: any of `:no_alloc`, `:reference`,
`:check`, `:tune`.
"""
mutable struct Context <: Handle
    ptr::Ptr{LibFP8.fp8_context}
    function Context(; backend::Symbol = :auto, device = 0, threads = 0, flags = ())
        backends = (auto = LibFP8.FP8_BACKEND_AUTO, cpu = LibFP8.FP8_BACKEND_CPU, cuda = LibFP8.FP8_BACKEND_CUDA)
        choices = (no_alloc = LibFP8.FP8_CONTEXT_NO_ALLOC, reference = LibFP8.FP8_CONTEXT_REFERENCE, check = LibFP8.FP8_CONTEXT_CHECK,
                   tune = LibFP8.FP8_CONTEXT_TUNE)
        bits = reduce(|, (known(choices, f, "flags") for f in (flags isa Symbol ? (flags,) : flags)); init = UInt32(0))
        config = Ref(LibFP8.fp8_context_config(backend = known(backends, backend, "backend"), device = device, threads = threads, flags = bits))
        return finalizer(close, new(LibFP8.fp8_context_create(config)))
    end
end
destroy(::Type{Context}, p) = LibFP8.fp8_context_destroy(p)
Base.show(io::IO, c::Context) = print(io, isopen(c) ? (iscuda(c) ? "Context(:cuda)" : "Context(:cpu)") : "Context(closed)")

query(c::Context, what) = LibFP8.fp8_context_query(handle(c), what)
iscuda(c::Context) = query(c, LibFP8.FP8_QUERY_BACKEND) == LibFP8.FP8_BACKEND_CUDA

"Which implementations a context has and chose, and why others were refused."
explain(c::Context) = LibFP8.fp8_context_explain(handle(c))

"What a context has done so far."
function counters(c::Context)
    r = Ref(LibFP8.fp8_counters())
    LibFP8.fp8_context_counters(handle(c), r)
    names = fieldnames(LibFP8.fp8_counters)[2:end]
    return NamedTuple{names}(Tuple(getfield(r[], n) for n in names))
end

const DEFAULT = Ref{Union{Nothing,Context}}(nothing)
const DEFAULT_LOCK = ReentrantLock()
"The context of calls that are given none: made at first use, for the CPU."
function default_context()
    lock(DEFAULT_LOCK) do
        if DEFAULT[] === nothing || !isopen(DEFAULT[])
            DEFAULT[] = Context(backend = :cpu)
        end
        return DEFAULT[]::Context
    end
end
