// Row kernels compared with the machine's copy. Each sample times a plain copy, a streaming copy and the
// kernel one after the other: equal bytes, in equally many calls, on memory that no cache holds (slices of
// arenas ten times the last cache). A sample moves at least 128 MB, so that neither the start of the threads
// nor pending writes of the last cache count. Sizes are GPT-2 124M's at 4 x 1,024 tokens.
//
// Medians are printed, and the median of the kernel's bytes a second, reads and writes counted, as a share of
// the better copy's in the same sample. Read-only kernels are also compared with reading: a loop that touches
// each line once, with a prefetch. A copy does not bound them, since no line goes back to memory.
//
//   bench_rows [--benchmark_filter=avx512.*/2/]     names are LEVEL/THREADS/KERNEL
#include <benchmark/benchmark.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "mantissa/base/buffer.h"
#include "mantissa/base/random.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/rows/rows.h"
#include "mantissa/numerics/formats.h"

namespace {

using namespace mantissa;
using namespace mantissa::on_cpu;

constexpr std::int64_t arena_bytes = 320 << 20;
constexpr std::int64_t min_bytes = 128 << 20;  // of a sample

/// Hands out slices of one buffer in turn, so that a slice is cold when it is used again.
class Arena {
  public:
    /// A megabyte of these numbers, repeated: subnormals and NaN would change the speed.
    template <class T>
    Arena(float (*value)(std::uint64_t), T (*rounded)(float)) : buffer_(arena_bytes, "benchmark arena") {
        constexpr std::size_t period = (1u << 20) / sizeof(T);
        const auto values = buffer_.as<T>();
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = i < period ? rounded(value(i)) : values[i - period];
    }
    template <class T = float>
    T* take(std::int64_t count) {
        const std::int64_t bytes = align_up(count * static_cast<std::int64_t>(sizeof(T)), 4096);
        if (next_ + bytes > arena_bytes) next_ = 0;
        T* slice = reinterpret_cast<T*>(buffer_.data() + next_);
        next_ += bytes;
        return slice;
    }

  private:
    Buffer buffer_;
    std::int64_t next_ = 0;
};

struct Memory {
    static float normal(std::uint64_t i) { return RandomStream{.seed = 1}.normal(i); }
    static float uniform(std::uint64_t i) { return RandomStream{.seed = 1}.uniform(i); }
    static float same(float x) { return x; }
    Arena in{normal, same};
    Arena in2{normal, same};
    Arena in_bf16{normal, to_bf16};
    Arena out{normal, same};
    Arena state{uniform, same};
    std::vector<float> small = std::vector<float>(1 << 20, 1.0f);
    std::vector<float> small2 = std::vector<float>(1 << 20, 0.5f);
    std::vector<float> work = std::vector<float>(8 << 20);
    std::vector<std::int32_t> ids, sorted = std::vector<std::int32_t>(1 << 18);
    Arena& floating(DType type) { return type == DType::bf16 ? in_bf16 : in; }
    Memory() {
        const RandomStream random{.seed = 2};
        for (std::uint32_t i = 0; i < 65536; ++i)
            ids.push_back(static_cast<std::int32_t>(random.bits(i) % 50257));
        for (float& x : work) x = 0;
    }
};

struct Run {
    const RowKernels& kernels;
    ThreadPool& pool;
    Memory& memory;
};

struct Kernel {
    const char* name;
    std::int64_t bytes;  ///< read and written
    std::function<void(const Run&)> run;
    bool only_reads = false;
};

// Rows of 768 channels, 3,072 in the feed-forward, 50,304 logits in chunks of 1,024 rows, 24 of 48 heads; the
// largest parameter.
constexpr std::int64_t rows = 4096;
constexpr std::int64_t C = 768;
constexpr std::int64_t flat = rows * 3072;
constexpr std::int64_t logit_rows = 1024;
constexpr std::int64_t V = 50304;
constexpr std::int64_t largest = V * C;

void add_norm_kernels(std::vector<Kernel>& all) {
    all.push_back({"layer_norm_grad f32", rows * C * 12, [](const Run& r) {
                       Memory& m = r.memory;
                       layer_norm_grad(r.kernels,
                                       {.rows = rows,
                                        .channels = C,
                                        .dy = {m.in2.take(rows * C)},
                                        .x = {m.in.take(rows * C)},
                                        .gamma = m.small.data(),
                                        .mean = m.small2.data(),
                                        .rstd = m.small.data(),
                                        .dx = {m.out.take(rows * C)},
                                        .dgamma = m.work.data(),
                                        .dbeta = m.work.data() + C,
                                        .workspace = m.work.data() + 2 * C},
                                       r.pool);
                   }});
}

void add_gelu_kernels(std::vector<Kernel>& all) {
    all.push_back({"gelu_grad f32", flat * 12, [](const Run& r) {
                       gelu_grad(r.kernels,
                                 {.count = flat,
                                  .x = {r.memory.in.take(flat)},
                                  .dy = {r.memory.in2.take(flat)},
                                  .dx = {r.memory.out.take(flat)}},
                                 r.pool);
                   }});
}

void add_loss_kernels(std::vector<Kernel>& all) {
    all.push_back({"cross_entropy f32", logit_rows * V * 4,
                   [](const Run& r) {
                       Memory& m = r.memory;
                       cross_entropy(r.kernels,
                                     {.rows = logit_rows,
                                      .classes = 50257,
                                      .stride = V,
                                      .logits = {m.in.take(logit_rows * V)},
                                      .targets = m.ids.data(),
                                      .loss = m.work.data(),
                                      .lse = m.work.data() + logit_rows,
                                      .mean_loss = m.work.data() + 2 * logit_rows},
                                     r.pool);
                   },
                   true});
    all.push_back({"cross_entropy_grad f32", logit_rows * V * 8, [](const Run& r) {
                       Memory& m = r.memory;
                       cross_entropy_grad(r.kernels,
                                          {.rows = logit_rows,
                                           .classes = 50257,
                                           .stride = V,
                                           .logits = {m.in.take(logit_rows * V)},
                                           .targets = m.ids.data(),
                                           .lse = m.small.data(),
                                           .dlogits = {m.out.take(logit_rows * V)}},
                                          r.pool);
                   }});
    all.push_back({"embedding f32", rows * C * 8, [](const Run& r) {
                       Memory& m = r.memory;
                       embedding(r.kernels,
                                 {.tokens = rows,
                                  .vocabulary = 50257,
                                  .channels = C,
                                  .ids = m.ids.data(),
                                  .table = {m.in.take(50257 * C)},
                                  .y = {m.out.take(rows * C)}},
                                 r.pool);
                   }});
    all.push_back({"embedding_grad f32 (added)", rows * C * 12, [](const Run& r) {
                       Memory& m = r.memory;
                       embedding_grad(r.kernels,
                                      {.tokens = rows,
                                       .vocabulary = 50257,
                                       .channels = C,
                                       .ids = m.ids.data(),
                                       .dy = {m.in2.take(rows * C)},
                                       .dtable = m.out.take(50257 * C),
                                       .accumulate = Accumulate::add,
                                       .workspace = m.sorted.data()},
                                      r.pool);
                   }});
}

void add_update_kernels(std::vector<Kernel>& all) {
    all.push_back({"squared_norm f32", largest * 4,
                   [](const Run& r) {
                       benchmark::DoNotOptimize(
                           squared_norm(r.kernels,
                                        {.count = largest,
                                         .x = {r.memory.in.take(largest)},
                                         .workspace = reinterpret_cast<double*>(r.memory.work.data())},
                                        r.pool));
                   },
                   true});
    all.push_back({"column_sum f32", rows * 3072 * 4,
                   [](const Run& r) {
                       column_sum(r.kernels,
                                  {.rows = rows,
                                   .channels = 3072,
                                   .x = {r.memory.in.take(rows * 3072)},
                                   .sum = r.memory.work.data(),
                                   .workspace = r.memory.work.data() + 4096},
                                  r.pool);
                   },
                   true});
}

void add_movement_kernels(std::vector<Kernel>& all) {
    for (const int size : {4, 2})
        all.push_back({size == 4 ? "transpose 4096 x 3072 f32" : "transpose 4096 x 3072 bf16",
                       rows * 3072 * size * 2, [size](const Run& r) {
                           permute(r.kernels,
                                   {.rank = 2,
                                    .extents = {rows, 3072},
                                    .axes = {1, 0},
                                    .element_size = size,
                                    .source = r.memory.in.take<char>(rows * 3072 * size),
                                    .target = r.memory.out.take<char>(rows * 3072 * size)},
                                   r.pool);
                       }});
    all.push_back({"permute heads f32", rows * C * 8, [](const Run& r) {
                       permute(r.kernels,
                               {.rank = 4,
                                .extents = {4, 1024, 12, 64},
                                .axes = {0, 2, 1, 3},
                                .source = r.memory.in.take(rows * C),
                                .target = r.memory.out.take(rows * C)},
                               r.pool);
                   }});
}

std::vector<Kernel> all_kernels() {
    std::vector<Kernel> all;
    add_norm_kernels(all);
    add_gelu_kernels(all);
    add_loss_kernels(all);
    add_update_kernels(all);
    add_movement_kernels(all);
    return all;
}

/// Seconds a byte of `calls` calls that move `bytes` each.
template <class F>
double seconds_a_byte(int threads, std::int64_t calls, std::int64_t bytes, F one_call) {
    const double seconds = seconds_of(threads, [&] {
        for (std::int64_t call = 0; call < calls; ++call) one_call();
    });
    return seconds / static_cast<double>(calls * bytes);
}

/// Touches every line once.
void read_lines(const char* from, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(from + i + 4096);
        benchmark::DoNotOptimize(*reinterpret_cast<const volatile char*>(from + i));
    }
}

/// Seconds a byte in the samples of one kernel and of its references.
struct Samples {
    std::vector<double> plain, streaming, reading, kernel;

    const std::vector<double>& better_copy() const {
        return median(plain) < median(streaming) ? plain : streaming;
    }
    /// The median share of the reference's speed that the kernel reaches, sample by sample.
    double share_of(const std::vector<double>& other) const {
        std::vector<double> shares;
        for (std::size_t i = 0; i < kernel.size(); ++i) shares.push_back(other[i] / kernel[i]);
        return median(shares);
    }
};

void measure(benchmark::State& state, const Kernel& kernel, const RowKernels& level, int threads) {
    static Memory memory;
    static ThreadPool one(1);
    static ThreadPool two(2);
    ThreadPool& pool = threads == 1 ? one : two;
    const Run run = {level, pool, memory};
    constexpr std::int64_t block = 256 << 10;
    const std::int64_t calls = ceil_div(min_bytes, kernel.bytes);
    const std::int64_t bytes = std::min(kernel.bytes, 2 * min_bytes) / (2 * block) * (2 * block);
    const auto copy_once = [&](Stores stores) {
        const Copy problem = {.bytes = bytes / 2,
                              .source = memory.in.take<char>(bytes / 2),
                              .target = memory.out.take<char>(bytes / 2)};
        copy(level, problem, pool, stores);
    };
    const auto read_once = [&] {
        const char* from = memory.in.take<char>(bytes);
        pool.for_each_block(bytes / block, [&](std::int64_t i, int) { read_lines(from + i * block, block); });
    };
    const auto timed = [&](std::int64_t moved, auto call) {
        return seconds_a_byte(threads, calls, moved, call);
    };
    kernel.run(run);
    Samples samples;
    for (auto _ : state) {
        samples.plain.push_back(timed(bytes, [&] { copy_once(Stores::plain); }));
        samples.streaming.push_back(timed(bytes, [&] { copy_once(Stores::streaming); }));
        if (kernel.only_reads) samples.reading.push_back(timed(bytes, read_once));
        samples.kernel.push_back(timed(kernel.bytes, [&] { kernel.run(run); }));
        state.SetIterationTime(samples.kernel.back() * static_cast<double>(kernel.bytes));
    }
    state.counters["GB_s"] = 1e-9 / median(samples.kernel);
    state.counters["copy_GB_s"] = 1e-9 / median(samples.better_copy());
    state.counters["of_copy"] = samples.share_of(samples.better_copy());
    state.counters["of_reading"] = kernel.only_reads ? samples.share_of(samples.reading) : 0.0;
}

void register_all() {
    static const std::vector<Kernel> kernels = all_kernels();
    for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
        if (isa > best_isa()) continue;
        const RowKernels& level = row_kernels(isa);
        for (const int threads : {1, 2})
            for (const Kernel& kernel : kernels)
                benchmark::RegisterBenchmark(
                    (std::string(level.name) + "/" + std::to_string(threads) + "/" + kernel.name).c_str(),
                    [&kernel, &level, threads](benchmark::State& state) {
                        measure(state, kernel, level, threads);
                    })
                    ->UseManualTime()
                    ->Iterations(21)
                    ->Unit(benchmark::kMillisecond);
    }
}

}  // namespace

int main(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    register_all();
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
