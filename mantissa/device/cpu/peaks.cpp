#include "mantissa/device/cpu/peaks.h"

#include <fmt/format.h>
#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "mantissa/base/buffer.h"
#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/device/cpu/unit_rates.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr int blocks_of_thread = 8;  // in a round, so that a thread which wakes late costs little

/// The count of repetitions with which `run(count)` takes an eighth of a millisecond; also a warm-up.
template <class Run>
std::int64_t repeats_of_block(Run run) {
    std::int64_t count = 16;
    for (double took = 0; took < 1e-3 / blocks_of_thread;) {
        count *= 2;
        const Stopwatch watch;
        run(count);
        took = watch.seconds();
    }
    return count;
}

/// Additions each of which waits for the one before: one a cycle on every CPU.
void addition_chain(std::int64_t rounds) {
    std::uint64_t sum = 0, one = 1;
    for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 64
        for (int i = 0; i < 64; ++i) asm volatile("add %1, %0" : "+r"(sum) : "r"(one));
    }
}

void copy_plain(const float* from, float* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += 16)
        for (std::int64_t j = 0; j < 16; j += 4) _mm_storeu_ps(to + i + j, _mm_loadu_ps(from + i + j));
}

void copy_streaming(const float* from, float* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += 16) {
        _mm_prefetch(from + i + 1024, _MM_HINT_T0);  // 4 KiB ahead
        for (std::int64_t j = 0; j < 16; j += 4) _mm_stream_ps(to + i + j, _mm_loadu_ps(from + i + j));
    }
    _mm_sfence();
}

double best_copy(ThreadPool& pool, std::span<float> memory, void (*copy)(const float*, float*, std::int64_t),
                 double seconds) {
    constexpr std::int64_t block = 64 * 1024;  // floats, 256 KiB: a few hundred blocks
    const auto half = static_cast<std::int64_t>(memory.size() / 2) / block * block;
    double best = 0;
    const Stopwatch total;
    do {
        const Stopwatch watch;
        pool.for_each_block(half / block, [&](std::int64_t index, int) {
            copy(memory.data() + index * block, memory.data() + half + index * block, block);
        });
        best = std::max(best, static_cast<double>(half) * sizeof(float) * 2 / watch.seconds());
    } while (total.seconds() < seconds);
    return best;
}

}  // namespace

double measured_rate(ThreadPool& pool, PeakLoop loop, double seconds) {
    const std::int64_t rounds = repeats_of_block(loop);
    double best = 0;
    const Stopwatch total;
    do {
        std::atomic<double> work{0};
        const Stopwatch watch;
        pool.for_each_block(blocks_of_thread * pool.threads(),
                            [&](std::int64_t, int) { work.fetch_add(loop(rounds)); });
        best = std::max(best, work.load() / watch.seconds());
    } while (total.seconds() < seconds);
    return best;
}

double measured_clock() {
    constexpr std::int64_t rounds =
        1000;  // 64,000 cycles, some 20 microseconds: too short for the clock to change
    double best = 0;
    for (int attempt = 0; attempt < 10; ++attempt) {
        const Stopwatch watch;
        addition_chain(rounds);
        best = std::max(best, 64 * rounds / watch.seconds());
    }
    return best;
}

double measured_read_bandwidth(ThreadPool& pool, ReadLoop loop, std::int64_t bytes, double seconds) {
    check(bytes > 0 && bytes % 4096 == 0, "the bandwidth of reading needs a multiple of 4 KiB");
    const std::int64_t count = bytes / static_cast<std::int64_t>(sizeof(float));
    const Buffer memory(static_cast<std::size_t>(bytes * pool.threads()), "memory to read");
    std::memset(memory.data(), 1, memory.size());
    const auto of = [&](int worker) { return memory.as<float>().data() + worker * count; };
    const std::int64_t repeats = repeats_of_block([&](std::int64_t times) { loop(of(0), count, times); });
    double best = 0;
    const Stopwatch total;
    do {
        const Stopwatch watch;
        const std::int64_t blocks = blocks_of_thread * pool.threads();
        pool.for_each_block(blocks, [&](std::int64_t, int worker) { loop(of(worker), count, repeats); });
        best = std::max(best, static_cast<double>(blocks * repeats * bytes) / watch.seconds());
    } while (total.seconds() < seconds);
    return best;
}

double measured_fma_peak(ThreadPool& pool, Isa isa, double seconds) {
    return measured_rate(pool, format_units(isa).f32.loop, seconds);
}

double measured_bf16_peak(ThreadPool& pool, Bf16Unit unit, double seconds) {
    if (unit == Bf16Unit::amx && best_isa() == Isa::amx)
        return measured_rate(pool, bf16_unit_amx().loop, seconds);
    if (unit == Bf16Unit::avx512_bf16 && has_bf16_dot())
        return measured_rate(pool, bf16_unit_avx512_bf16().loop, seconds);
    throw UserError(fmt::format("the peak of BF16 products needs a CPU with {}; this one lacks it",
                                unit == Bf16Unit::none ? "a unit for them" : name_of(unit)));
}

CopyBandwidth measured_copy_bandwidth(ThreadPool& pool, std::span<std::byte> scratch, double seconds) {
    if (scratch.size() < (1U << 20)) throw UserError("the copy bandwidth needs a scratch of 1 MiB or more");
    const std::span<float> memory(reinterpret_cast<float*>(scratch.data()), scratch.size() / sizeof(float));
    // Pages never written all read from one page of zeros, which stays in L1.
    constexpr std::size_t page = 4096 / sizeof(float);
    for (std::size_t at = 0; at < memory.size(); at += page) memory[at] = 1.0f;
    return {.plain = best_copy(pool, memory, copy_plain, seconds / 2),
            .streaming = best_copy(pool, memory, copy_streaming, seconds / 2)};
}

}  // namespace mantissa::on_cpu
