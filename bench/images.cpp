// Image kernels compared with the machine's copy: pools, batch normalisation, relu's gradient. Each sample
// times a copy and the kernel one after the other, on memory that no cache holds (slices of an arena ten
// times the last cache), as bench_rows does. Sizes are ResNet50's on 8 images of 224 x 224.
//
// Medians are printed: the kernel's bytes a second, with each tensor counted once per pass over it, and the
// share of the copy's rate in the same sample.
//
//   bench_images [--benchmark_filter=avx512.*/2/]     names are LEVEL/THREADS/KERNEL
#include <benchmark/benchmark.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "mantissa/base/buffer.h"
#include "mantissa/base/random.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/rows/rows.h"
#include "mantissa/graph/pooling.h"
#include "mantissa/numerics/formats.h"

namespace {

using namespace mantissa;
using namespace mantissa::on_cpu;

constexpr std::int64_t arena_bytes = 640 << 20;
constexpr std::int64_t min_bytes = 128 << 20;  // of a sample

/// Hands out slices of one buffer in turn, so that a slice is cold when it is used again.
class Arena {
  public:
    Arena() : buffer_(arena_bytes, "benchmark arena") {
        // Normal numbers in either format: the upper halves of FP32 ones are BF16 ones.
        const auto values = buffer_.as<float>();
        constexpr std::size_t period = 1 << 18;
        const RandomStream random{.seed = 1};
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (i >= period) {
                values[i] = values[i - period];
                continue;
            }
            const BF16 two[2] = {to_bf16(random.normal(2 * i)), to_bf16(random.normal(2 * i + 1))};
            __builtin_memcpy(&values[i], two, sizeof two);
        }
    }
    void* take(std::int64_t bytes) {
        bytes = align_up(bytes, 4096);
        if (next_ + bytes > arena_bytes) next_ = 0;
        next_ += bytes;
        return buffer_.data() + next_ - bytes;
    }

  private:
    Buffer buffer_;
    std::int64_t next_ = 0;
};

struct Run {
    const RowKernels& kernels;
    ThreadPool& pool;
    Arena& arena;
    std::vector<float>& small;  ///< scales, statistics, workspaces

    View take(DType type, std::int64_t count) const {
        return {arena.take(count * static_cast<std::int64_t>(size_of(type))), type};
    }
    ConstView given(DType type, std::int64_t count) const { return {take(type, count).data, type}; }
};

struct Kernel {
    std::string name;
    std::int64_t bytes;
    std::function<void(const Run&)> run;
};

/// The pool after ResNet's first convolution.
struct StemPool {
    Attributes attributes{{"window", std::vector<std::int64_t>{3, 3}},
                          {"stride", std::vector<std::int64_t>{2, 2}},
                          {"padding", std::vector<std::int64_t>{1, 1, 1, 1}}};
    std::vector<PoolSpan> spans = pool_spans(attributes, 0, 112);
    std::vector<PoolOutputs> outputs = pool_outputs(spans, 112);
    PoolShape shape{.images = 8,
                    .rows = 112,
                    .columns = 112,
                    .output_rows = 56,
                    .output_columns = 56,
                    .channels = 64,
                    .row_spans = spans.data(),
                    .column_spans = spans.data(),
                    .row_outputs = outputs.data(),
                    .column_outputs = outputs.data(),
                    .window_columns = 3};
    std::int64_t image = 8 * 112 * 112 * 64, pooled = 8 * 56 * 56 * 64;
};

void add_pools(std::vector<Kernel>& all, DType type) {
    static const StemPool p;
    const auto size = static_cast<std::int64_t>(size_of(type));
    const std::string format(name_of(type));
    const std::int64_t moved = (p.image + p.pooled) * size;
    all.push_back({"max_pool " + format, moved + p.pooled, [=](const Run& r) {
                       max_pool(r.kernels,
                                {.shape = p.shape,
                                 .x = r.given(type, p.image),
                                 .y = r.take(type, p.pooled),
                                 .index = static_cast<std::uint8_t*>(r.arena.take(p.pooled))},
                                r.pool);
                   }});
    all.push_back({"max_pool_grad " + format, moved + p.pooled, [=](const Run& r) {
                       auto* index = static_cast<std::uint8_t*>(r.arena.take(p.pooled));
                       max_pool_grad(r.kernels,
                                     {.shape = p.shape,
                                      .dy = r.given(type, p.pooled),
                                      .index = index,
                                      .dx = r.take(type, p.image)},
                                     r.pool);
                   }});
    all.push_back({"average_pool " + format, moved, [=](const Run& r) {
                       average_pool(
                           r.kernels,
                           {.shape = p.shape, .x = r.given(type, p.image), .y = r.take(type, p.pooled)},
                           r.pool);
                   }});
    all.push_back({"average_pool_grad " + format, moved, [=](const Run& r) {
                       average_pool_grad(
                           r.kernels,
                           {.shape = p.shape, .dy = r.given(type, p.pooled), .dx = r.take(type, p.image)},
                           r.pool);
                   }});
}

/// Rows of 8 images of 56 x 56, with 64 and with 256 channels.
void add_norms(std::vector<Kernel>& all, DType type, std::int64_t C) {
    constexpr std::int64_t rows = 8 * 56 * 56;
    const std::int64_t image = rows * C * static_cast<std::int64_t>(size_of(type));
    const std::string name = " of " + std::to_string(C) + " " + std::string(name_of(type));
    all.push_back({"moments" + name, image, [=](const Run& r) {
                       float* s = r.small.data();
                       moments(r.kernels,
                               {.rows = rows,
                                .channels = C,
                                .x = r.given(type, rows * C),
                                .mean = s,
                                .variance = s + C,
                                .rstd = s + 2 * C,
                                .workspace = s + 3 * C},
                               r.pool);
                   }});
    all.push_back({"normalize" + name, 2 * image, [=](const Run& r) {
                       const float* s = r.small.data();
                       normalize(r.kernels,
                                 {.rows = rows,
                                  .channels = C,
                                  .x = r.given(type, rows * C),
                                  .mean = s,
                                  .scale = s + C,
                                  .beta = s + 2 * C,
                                  .y = r.take(type, rows * C)},
                                 r.pool);
                   }});
    all.push_back({"batch_norm_grad" + name, 5 * image, [=](const Run& r) {
                       float* s = r.small.data();
                       batch_norm_grad(r.kernels,
                                       {.rows = rows,
                                        .channels = C,
                                        .dy = r.given(type, rows * C),
                                        .x = r.given(type, rows * C),
                                        .gamma = s,
                                        .mean = s + C,
                                        .rstd = s + 2 * C,
                                        .dx = r.take(type, rows * C),
                                        .dgamma = s + 3 * C,
                                        .dbeta = s + 4 * C,
                                        .workspace = s + 5 * C},
                                       r.pool);
                   }});
}

const std::vector<Kernel>& all_kernels() {
    static const std::vector<Kernel> kernels = [] {
        std::vector<Kernel> all;
        for (const DType type : {DType::f32, DType::bf16}) {
            add_pools(all, type);
            for (const std::int64_t C : {64, 256}) add_norms(all, type, C);
        }
        return all;
    }();
    return kernels;
}

void measure(benchmark::State& state, const Kernel& kernel, Isa isa, int threads) {
    static Arena arena;
    static ThreadPool one(1), two(2);
    ThreadPool& pool = threads == 1 ? one : two;
    std::vector<float> small(1 << 20, 0.5f);
    const Run run = {row_kernels(isa), pool, arena, small};
    const std::int64_t calls = ceil_div(min_bytes, kernel.bytes);
    const auto copy_once = [&] {
        const std::int64_t bytes = kernel.bytes / 2;
        const void* from = arena.take(bytes);
        copy(row_kernels(isa), {.bytes = bytes, .source = from, .target = arena.take(bytes)}, pool);
    };
    const auto seconds_a_byte = [&](auto call) {
        const double seconds = seconds_of(threads, [&] {
            for (std::int64_t i = 0; i < calls; ++i) call();
        });
        return seconds / static_cast<double>(calls * kernel.bytes);
    };
    kernel.run(run);
    std::vector<double> copies, times, shares;
    for (auto _ : state) {
        copies.push_back(seconds_a_byte(copy_once));
        times.push_back(seconds_a_byte([&] { kernel.run(run); }));
        shares.push_back(copies.back() / times.back());
        state.SetIterationTime(times.back() * static_cast<double>(kernel.bytes));
    }
    state.counters["GB_s"] = 1e-9 / median(times);
    state.counters["copy_GB_s"] = 1e-9 / median(copies);
    state.counters["of_copy"] = median(shares);
}

void register_all() {
    for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
        if (isa > best_isa()) continue;
        for (const int threads : {1, 2})
            for (const Kernel& kernel : all_kernels())
                benchmark::RegisterBenchmark(
                    (std::string(row_kernels(isa).name) + "/" + std::to_string(threads) + "/" + kernel.name)
                        .c_str(),
                    [&kernel, isa, threads](benchmark::State& state) {
                        measure(state, kernel, isa, threads);
                    })
                    ->UseManualTime()
                    ->Iterations(11)
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
