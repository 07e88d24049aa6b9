# SPDX-License-Identifier: Apache-2.0
using Test
using FP8
using FP8: codes, scales, LibFP8

const context = Context(backend = :cpu, threads = 2)
const state = Ref(UInt32(1))
function rand32()
    state[] = state[] * 0x0019660d + 0x3c6ef35f
    return Float32(state[] >> 8) / 8388608.0f0 - 1.0f0
end
values32(dims...) = [rand32() for _ in CartesianIndices(dims)]
bf16(a) = BFloat16.(a)
f32(a) = Float32.(a)
off(a, b) = sqrt(sum(abs2, f32(a) .- f32(b)) / sum(abs2, f32(b)))

@testset "FP8" begin
    @testset "element types" begin
        all8 = reinterpret(E4M3, collect(0x00:0xff))
        for T in (E4M3, E5M2)
            every = collect(reinterpret(T, collect(0x00:0xff)))
            library = cast(Float32, every; context = context)
            @test all(isequal.(library, f32.(every)))
            x = values32(4096) .* 600
            @test reinterpret(UInt8, cast(T, x; context = context)) == reinterpret(UInt8, T.(x))
            @test T(1.0e9) == T(T == E4M3 ? 448 : 57344) && isnan(T(NaN))
        end
        x = values32(4096)
        @test reinterpret(UInt16, cast(BFloat16, x; context = context)) == reinterpret(UInt16, BFloat16.(x))
        @test length(all8) == 256 && Float32(reinterpret(E8M0, 0x80)) == 2.0f0
        @test E4M3(1.5) + 1.0f0 === 2.5f0 && sprint(show, E4M3(1.5)) == "E4M3(1.5)"
    end

    @testset "recipes and errors" begin
        r = Recipe("blockwise")
        @test occursin("128x128", string(r)) && Recipe(string(r)) == r && r != Recipe("mx")
        @test Recipe("block"; scale_rule = LibFP8.FP8_SCALE_FP32) != r
        @test_throws ArgumentError Recipe("block"; colour = 1)
        e = try
            Recipe("brick")
        catch e
            e
        end
        @test e isa FP8Error && e.status == LibFP8.FP8_ERR_ARGUMENT && occursin("brick", sprint(showerror, e))
        close(r)
        close(r)
        @test !isopen(r)
        @test_throws ArgumentError string(r)
    end

    @testset "what a newcomer meets" begin
        message(f) =
            try
                f()
                ""
            catch e
                sprint(showerror, e)
            end
        @test occursin("FP8_LIBRARY", message(() -> FP8.open_library("/nowhere/libfp8.so.0")))
        other = message(() -> FP8.open_library("libm.so.6"))
        @test occursin("libm.so.6 is another library", other) && occursin("FP8_LIBRARY", other)
        withenv("FP8_LIBRARY" => "") do  # empty is as unset: the loader looks, and finds the open one
            @test FP8.__init__() === nothing
        end
        l = Linear(192, 320; context = context)
        @test_throws DimensionMismatch quantize_weight(l, values32(320, 192))
        @test occursin("w is (320, 192), this linear wants (in 192, out 320)", message(() -> quantize_weight(l, values32(320, 192))))
        x = values32(64, 32)
        q = quantize(x; recipe = :block, context = context)
        @test q.recipe == Recipe(:blockwise) == Linear(64, 32; recipe = :block, context = context).recipe
        @test occursin("brick", message(() -> quantize(x; recipe = :brick, context = context)))
        for (text, call) in (
            "role is :weights, known are :activation, :weight, :gradient" => () -> quantize(x; role = :weights, context = context),
            "sides is :rows, known are :row, :col, :both" => () -> quantize(x; sides = :rows, context = context),
            "side is :column, known are :row, :col" => () -> codes(q, :column), "side is :x" => () -> scales(q, :x),
            "side is :both" => () -> dequantize(q; side = :both), "side is :x" => () -> amax(x; side = :x, context = context),
            "side is :x" => () -> measure(x, q; side = :x), "a_side is :x" => () -> gemm(q, q, :x), "b_side is :x" => () -> gemm(q, q, :row, :x),
            "backend is :gpu, known are :auto, :cpu, :cuda" => () -> Context(backend = :gpu),
            "flags is :fast" => () -> Context(backend = :cpu, flags = (:check, :fast)))
            @test startswith(message(call), "ArgumentError: $text")
        end
    end

    @testset "the column-major rule" begin
        x = bf16(values32(160, 96))  # C's [96, 160]
        t = FP8.tensor(x)
        @test t.data == Ptr{Cvoid}(pointer(x)) && t.shape[1:2] == (96, 160) && t.stride[1:2] == (160, 1)
        part = FP8.tensor(view(x, 17:32, :))
        @test part.shape[1:2] == (96, 16) && part.stride[1:2] == (160, 1)
        @test_throws ArgumentError FP8.tensor(x')
        @test_throws ArgumentError FP8.tensor(PermutedDimsArray(x, (2, 1)))
        @test_throws ArgumentError FP8.tensor(rand(ComplexF32, 2, 2))
        q = quantize(x; recipe = "row", context = context)
        @test size(q) == (160, 96) && size(codes(q)) == (160, 96) && size(codes(q, :col)) == (96, 160)
        # a row of C is a column of Julia: one scale for each token
        @test size(scales(q)) == (96,) && size(scales(q, :col)) == (160,)
        by_hand = f32(codes(q)) .* reshape(scales(q), 1, 96)
        @test by_hand == dequantize(q)
        @test permutedims(f32(codes(q, :col)) .* reshape(scales(q, :col), 1, 160)) == dequantize(q; side = :col)
        @test vec(amax(x; recipe = "row", context = context)) == vec(maximum(abs.(f32(x)), dims = 1))
    end

    @testset "quantize: $name" for name in ("tensor", "row", "block", "mx", "mx_w2d")
        x = bf16(values32(128, 3, 50))
        stats = zeros(UInt64, 8)
        q = quantize(x; recipe = name, stats = stats, context = context)
        @test size(q) == (128, 150) && stats[1] == length(x) && sides(q) == :both
        for side in (:row, :col)
            @test 0 < off(dequantize(q; side = side), reshape(f32(x), 128, 150)) < 0.05
        end
        @test 28 < measure(reshape(x, 128, 150), q).snr_db < 40
    end

    @testset "linear: $name" for name in ("none", "tensor", "row", "block", "mx", "mx_w2d")
        x, w, dy = bf16(values32(256, 2, 48)), values32(256, 64), bf16(values32(64, 2, 48))
        bias = values32(64)
        l = Linear(256, 64; recipe = name, context = context)
        qw = quantize_weight(l, w)
        y, saved = forward(l, x, qw, bias)
        dx, dw, dbias = backward(l, dy, qw, saved; dbias = true)
        x2, dy2 = reshape(f32(x), 256, 96), reshape(f32(dy), 64, 96)
        limit = name == "none" ? 0.01 : 0.06
        @test size(y) == (64, 2, 48) && size(dx) == (256, 2, 48)
        @test off(reshape(y, 64, 96), w' * x2 .+ bias) < limit
        @test off(reshape(dx, 256, 96), w * dy2) < limit
        @test off(dw, x2 * dy2') < limit
        @test off(dbias, vec(sum(dy2, dims = 2))) < 0.01
        once = copy(dw)
        backward(l, dy, qw, saved; dx = false, dw = dw, accumulate = true)
        @test off(dw, 2 .* once) < 1e-5
        # no array given: added to zero, whatever the memory held before
        fill(NaN32, 256, 64)
        GC.gc()
        @test all(backward(l, dy, qw, saved; accumulate = true)[2] == once for _ in 1:8)
        for none in (nothing, false)
            only_dx = backward(l, dy, qw, none === nothing ? nothing : saved; dw = none)
            @test reinterpret(UInt16, only_dx[1]) == reinterpret(UInt16, dx) && only_dx[2] === nothing
        end
        @test backward(l, dy, qw, saved; dx = false, dw = nothing, dbias = true)[3] == dbias
        @test_throws FP8Error backward(l, dy, qw, nothing)
        q = quantize(x; recipe = name, context = context)
        @test reinterpret(UInt16, gemm(q, qw; bias = bias)) == reinterpret(UInt16, reshape(y, 64, 96))
        @test_throws FP8Error forward(l, bf16(values32(128, 4)), qw)
    end

    @testset "primary weights: $name" for name in ("none", "tensor", "row", "block", "mx")
        shapes, masters = [(96, 64), (40, 128)], [values32(96, 64), values32(40, 128)]
        cuts = [[0, 1000, 6144], [0, 5120, 5120]]  # rank 1 owns nothing of the second
        ranks = [Params(name, shapes, cuts; rank = r, context = context) for r in 0:1]
        mine(p) = [vec(m)[owned(p, i)] for (i, m) in enumerate(masters)]
        parts = map(mine, ranks)
        foreach(amax!, ranks, parts)
        if ranks[1].layout.amax_dtype == LibFP8.FP8_DTYPE_F32
            most = reinterpret(UInt8, max.(reinterpret(Float32, ranks[1].amax), reinterpret(Float32, ranks[2].amax)))
        else
            most = max.(ranks[1].amax, ranks[2].amax)
        end
        foreach(p -> copyto!(p.amax, most), ranks)
        foreach(cast!, ranks, parts)
        full = full_weights(ranks[1])
        assemble!(full, ranks[1], vcat(ranks[1].shard, ranks[2].shard))
        for (q, m) in zip(full, masters), side in (:row, :col)
            whole = quantize(m; recipe = name, role = :weight, copy = true, context = context)
            @test dequantize(q; side = side) == dequantize(whole; side = side)
        end
        comm = local_comms(1)[1]
        alone = Params(name, shapes, [[0, 6144], [0, 5120]]; context = context)
        quantize!(alone, comm, map(vec, masters))
        again = full_weights(alone)
        gather!(again, alone, comm)
        @test all(dequantize(a) == dequantize(b) for (a, b) in zip(again, full))
        @test_throws ArgumentError amax!(alone, [vec(masters[1])])
    end

    # one thread a rank; a rank that waits holds back the garbage collector, so that is off meanwhile
    Threads.nthreads() < 2 && @warn "local ranks as threads: SKIPPED, Julia has one thread (JULIA_NUM_THREADS)"
    @testset "local ranks as threads: $name" for name in (Threads.nthreads() < 2 ? () : ("tensor", "mx"))
        shapes, masters = [(96, 64), (40, 128)], [values32(96, 64), values32(40, 128)]
        cuts = [[0, 1000, 6144], [0, 5120, 5120]]
        comms = local_comms(2)
        @test [(c.rank, c.size) for c in comms] == [(0, 2), (1, 2)]
        ranks = [Params(name, shapes, cuts; rank = c.rank, context = context) for c in comms]
        parts = [[vec(m)[owned(p, i)] for (i, m) in enumerate(masters)] for p in ranks]
        full = map(full_weights, ranks)
        GC.enable(false)
        try
            Threads.@threads for r in 1:2
                quantize!(ranks[r], comms[r], parts[r])
                gather!(full[r], ranks[r], comms[r])
            end
        finally
            GC.enable(true)
        end
        whole = [quantize(m; recipe = name, role = :weight, copy = true, context = context) for m in masters]
        for gathered in full, (q, w) in zip(gathered, whole), side in (:row, :col)
            @test reinterpret(UInt8, codes(q, side)) == reinterpret(UInt8, codes(w, side)) && scales(q, side) == scales(w, side)
        end
        foreach(close, comms)
    end

    @testset "communicators" begin
        error_of(f) =
            try
                f()
                nothing
            catch e
                e
            end
        e = error_of(() -> nccl_comm(context, zeros(UInt8, 128), 0, 1))
        @test e isa FP8Error && e.status == LibFP8.FP8_ERR_ARGUMENT && occursin("CPU context", e.message)
        @test_throws ArgumentError nccl_comm(context, zeros(UInt8, 127), 0, 1)
        e = error_of(() -> (length(nccl_id()) == 128 && nccl_id() != nccl_id()) || error("not an id"))
        @test e === nothing || (e isa FP8Error && occursin(r"cuda|nccl"i, e.message))  # where there is no NCCL it is said
        made = Ref(Ptr{LibFP8.fp8_comm}(C_NULL))
        GC.@preserve made LibFP8.fp8_comm_create_local(1, FP8.address(made))
        comm = Comm(made[])
        @test (comm.rank, comm.size, isopen(comm)) == (0, 1, true)
        close(comm)
        @test_throws ArgumentError FP8.handle(comm)
    end

    # the programs of the page that stand alone, run as they are
    @testset "docs/julia.md" begin
        page = read(joinpath(@__DIR__, "..", "..", "..", "..", "docs", "julia.md"), String)
        programs = [m[1] for m in eachmatch(r"```julia\n(.*?)```"s, page)]
        _, primary, low = programs
        if Threads.nthreads() >= 2
            m = Module()
            Base.include_string(m, primary)
            @test length(m.full) == 2 && codes(m.full[1][1]) == codes(m.full[2][1]) && all(isfinite, dequantize(m.full[1][1]))
        end
        m = Module()
        Base.include_string(m, low)
        @test m.stats[1] == 256 * 32 && all(abs.(f32(m.y) .- 1.28) .< 0.05)
    end

    @testset "finalizers and close" begin
        for _ in 1:200
            Linear(64, 64; context = context)
            Recipe("mx")
        end
        GC.gc()
        GC.gc()
        c = Context(backend = :cpu, threads = 1)
        l = Linear(64, 32; context = c)
        close(c)  # the linear holds a reference of its own
        @test isopen(l) && sprint(show, c) == "Context(closed)"
        close(l)
        q = quantize(values32(64, 32); context = context)
        q2 = q
        close(q)
        close(q)
        @test !isopen(q2) && sprint(show, q) == "QTensor(closed)" && isempty(q.memory) && q.source === nothing
        for call in (() -> dequantize(q), () -> codes(q), () -> gemm(q, q), () -> size(q), () -> quantize!(q, values32(64, 32)))
            @test_throws ArgumentError("QTensor is closed") call()
        end
        p = Params("mx", [(64, 32)], [[0, 2048]]; context = context)
        close(p)
        @test_throws ArgumentError amax!(p, [values32(2048)])
        @test counters(context).quantizations > 0 && occursin("gemm", explain(context))
    end
end
