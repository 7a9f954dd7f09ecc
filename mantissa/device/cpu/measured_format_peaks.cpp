#include "mantissa/device/cpu/measured_format_peaks.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <utility>

#include "mantissa/base/buffer.h"
#include "mantissa/base/clock.h"
#include "mantissa/base/printable.h"
#include "mantissa/device/cpu/core_rates.h"
#include "mantissa/device/cpu/peaks.h"
#include "mantissa/device/cpu/unit_rates.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// A unit's rates on all cores.
struct Rates {
    std::optional<double> theoretical, measured;
    std::string by;
};

/// Measures units, each once.
class Bench {
  public:
    Bench(ThreadPool& pool, double seconds)
        : pool_(pool), cores_(std::min(available_cores(), pool.threads())), seconds_(seconds) {}

    Rates of(const FormatUnit& unit) {
        if (!unit.loop) return {};
        const auto core = [&] { return measured_rate(one_thread_, unit.loop, 0.004); };
        const auto clock = [] { return measured_clock(); };
        const auto all_cores = [&](double enough) { return best_of_all_threads(unit.loop, enough); };
        const UnitRates rates =
            rates_of(unit, cores_, {.core = core, .clock = clock, .all_cores = all_cores});
        const std::string how_many = rates.issue < 1 ? fmt::format("1 in {:.0f} cycles", 1 / rates.issue)
                                                     : fmt::format("{:.0f} a cycle", rates.issue);
        return {.theoretical = rates.theoretical,
                .measured = rates.measured,
                .by = fmt::format("{}: {}, {:.2f} GHz", unit.name, how_many, rates.clock / 1e9)};
    }

    int cores() const { return cores_; }

  private:
    /// Others may use the machine's cores, too; at once where `enough` is reached.
    double best_of_all_threads(PeakLoop loop, double enough) {
        const Stopwatch watch;
        double best = 0;
        do best = std::max(best, measured_rate(pool_, loop, std::min(0.1, seconds_)));
        while (best < enough && watch.seconds() < seconds_);
        return best;
    }

    ThreadPool& pool_;
    ThreadPool one_thread_{1};
    int cores_;
    double seconds_;
};

/// The peak of a mode that takes `products` products of the unit for one of its own.
MatrixPeak matrix_peak(const char* inputs, const char* accumulator, const Rates& rates, int products = 1,
                       const char* what = "") {
    MatrixPeak peak{.inputs = inputs, .accumulator = accumulator};
    if (!rates.measured) return peak;
    peak.dense = *rates.theoretical / products;
    peak.measured = *rates.measured / products;
    peak.by = *what ? fmt::format("{}; {}", what, rates.by) : rates.by;
    return peak;
}

VectorPeak vector_peak(const char* format, const Rates& rates) {
    return {.format = format, .rate = rates.theoretical, .measured = rates.measured, .by = rates.by};
}

/// `f16` is of sums in FP16, natively or not.
void add_floating_modes(FormatPeaks& peaks, const Rates& f64, const Rates& f32, const Rates& f16,
                        const Rates& bf16, bool tiles) {
    peaks.matrix.push_back(matrix_peak("f64", "f64", f64));
    peaks.matrix.push_back(matrix_peak("f32", "f32", f32));
    peaks.matrix.push_back(tiles ? matrix_peak("tf32", "f32", bf16, 3, "3 products of BF16")
                                 : matrix_peak("tf32", "f32", f32, 1, "operands rounded before"));
    peaks.matrix.push_back(tiles ? matrix_peak("f16", "f32", bf16, 4, "4 products of BF16")
                                 : matrix_peak("f16", "f32", f32, 1, "operands widened before"));
    peaks.matrix.push_back(matrix_peak("f16", "f16", f16));
    peaks.matrix.push_back(bf16.measured ? matrix_peak("bf16", "f32", bf16)
                                         : matrix_peak("bf16", "f32", f32, 1, "operands widened before"));
}

double copy_bandwidth(ThreadPool& pool, double seconds) {
    constexpr std::int64_t least = 128 << 20;
    // Copied from one half to the other, each twice the last level of cache; no more than a gigabyte.
    const std::int64_t bytes = std::clamp(4 * cache_sizes().l3, least, 8 * least);
    const Buffer memory(static_cast<std::size_t>(bytes), "memory to copy");
    std::memset(memory.data(), 1, memory.size());
    return measured_copy_bandwidth(pool, memory.as<std::byte>(), seconds).best();
}

/// The modes that models run in, on matrices whose product would take some 10 ms at its peak.
void add_whole_rates(FormatPeaks& peaks, ThreadPool& pool, Isa isa) {
    for (MatrixPeak& peak : peaks.matrix)
        if (peak.measured)
            peak.whole = whole_rate(peak.inputs, peak.accumulator, 0.01 * *peak.measured, pool, isa);
}

/// Half of a cache, in whole pages: data of that size stays there.
std::int64_t half_of(std::int64_t cache) { return std::max<std::int64_t>(cache / 2 / 4096 * 4096, 4096); }

}  // namespace

int available_cores() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
    std::set<std::pair<int, int>> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        const std::string topology = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", cpu);
        int package = -1, core = cpu;  // where the system does not say, each is a core of its own
        std::ifstream(topology + "physical_package_id") >> package;
        if (int number = 0; std::ifstream(topology + "core_id") >> number) core = number;
        cores.emplace(package, core);
    }
    return static_cast<int>(cores.size());
}

FormatPeaks measured_format_peaks(ThreadPool& pool, Isa isa, const MeasuringTime& most) {
    Bench bench(pool, most.unit);
    const FormatUnits units = format_units(isa);
    const Rates f64 = bench.of(units.f64), f32 = bench.of(units.f32), f16 = bench.of(units.f16);
    const Rates bf16 = bench.of(units.bf16), s32 = bench.of(units.s32), s8 = bench.of(units.s8);

    FormatPeaks peaks;
    add_floating_modes(peaks, f64, f32, f16.measured ? f16 : bench.of(units.f16_as_f32), bf16,
                       bf16_unit(isa) == Bf16Unit::amx);
    peaks.matrix.push_back(matrix_peak("s8", "s32", s8));
    peaks.matrix.push_back(matrix_peak("s4", "s32", s8, 1, "operands widened before"));
    peaks.matrix.push_back(matrix_peak("b1", "s32", bench.of(units.b1)));
    peaks.vector = {vector_peak("f64", f64), vector_peak("f32", f32), vector_peak("bf16", {}),
                    vector_peak("f16", f16), vector_peak("s32", s32)};
    // Zeros can be skipped where FP32 lanes multiply a format that sums in FP32.
    const double sparse = measured_rate(pool, units.sparse, std::min(0.1, most.unit));
    for (MatrixPeak& peak : peaks.matrix)
        if (peak.accumulator == "f32" && peak.measured == f32.measured) peak.whole_sparse = sparse;
    add_whole_rates(peaks, pool, isa);
    const CacheSizes caches = cache_sizes();
    peaks.memory_measured = copy_bandwidth(pool, most.memory);
    peaks.l2_measured = measured_read_bandwidth(pool, units.read, half_of(caches.l2), most.cache);
    peaks.l1_measured = measured_read_bandwidth(pool, units.read, half_of(caches.l1d), most.cache);
    peaks.notes = {
        fmt::format("instruction set {}, {} on {}, L1 {} KB and L2 {} KB a core", instructions_of(isa),
                    count_text(pool.threads(), "thread"), count_text(bench.cores(), "core"),
                    caches.l1d / 1024, caches.l2 / 1024),
        reason_of_unit(isa, core_rates()),
        "theoretical: instructions a cycle, as measured on one core and rounded up to 1/16, 1/8, 1/4, 1/2, "
        "1, 2, 3 or 4, times the clock measured right after them, times the cores; measured again where all "
        "cores together were faster",
        "measured: the best of all threads together, operands in registers; a share far below 100 % says "
        "that the cores were busy with something else, or are shared",
        "whole: the best of some multiplications of matrices in memory, packing and storing included, 1,024 "
        "columns, 768 deep, of the modes that models run in; 2:4: the first one sparse, its zeros counted, "
        "its "
        "numbers and what they meet in L1. No CPU has a unit for that: FP32 multiply-adds skip the zeros, "
        "other "
        "units have a dense one's speed",
        "a program cannot see how wide the memory is, so its theoretical bandwidth is left out"};
    return peaks;
}

}  // namespace mantissa::on_cpu
