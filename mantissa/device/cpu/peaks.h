// The most that this machine can do, measured: multiply-adds of each unit, and copying memory. Short calls,
// so that a benchmark can put one right before and one right after its own measurement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::inline v0::on_cpu {

/// FLOP/s of FP32 multiply-adds (2 each) in the registers of the level on all threads of the pool: the best
/// of rounds of about a millisecond that together last about `seconds`. The generic level multiplies and adds
/// apart.
double measured_fma_peak(ThreadPool& pool, Isa isa, double seconds = 0.02);

/// FLOP/s of BF16 products with FP32 sums on a unit, likewise. Throws UserError where the CPU lacks it.
double measured_bf16_peak(ThreadPool& pool, Bf16Unit unit, double seconds = 0.02);

/// Operations a second of a loop on all threads of the pool, likewise.
double measured_rate(ThreadPool& pool, PeakLoop loop, double seconds);

/// Cycles a second of the calling thread's core, at its speed right after the work before.
double measured_clock();

/// Bytes a second that all threads of the pool together read, each from memory of its own: `bytes` of it, a
/// multiple of 4 KiB. The best of rounds, as above.
double measured_read_bandwidth(ThreadPool& pool, ReadLoop loop, std::int64_t bytes, double seconds);

/// Bytes per second, read and written counted.
struct CopyBandwidth {
    double plain = 0;
    double streaming = 0;  ///< stores past the caches

    double best() const { return plain > streaming ? plain : streaming; }
};

/// Copies the first half of `scratch` to the second, and the best round counts. The scratch should be several
/// times the last level of cache, and touched before. Throws UserError below 1 MiB.
CopyBandwidth measured_copy_bandwidth(ThreadPool& pool, std::span<std::byte> scratch, double seconds = 0.04);

}  // namespace mantissa::on_cpu
