// Row kernels against the machine's copy: each sample times a plain copy, a streaming copy and the kernel one
// after the other, on memory that no cache holds (slices taken in turn from arenas several times the last
// cache). Printed are medians, and the kernel's bytes per second as a share of the better copy's, reads and
// writes counted.
//
//   bench_rows [--benchmark_filter=avx512/2/]     names are LEVEL/THREADS/KERNEL
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "mantissa/base/buffer.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/rows/rows.h"

namespace {

using namespace mantissa;
using namespace mantissa::cpu;

constexpr std::int64_t arena_bytes = 160 << 20;
constexpr std::int64_t copy_bytes = 32 << 20;

/// Hands out slices of one buffer in turn, so that a slice is cold when it comes round again.
class Arena {
  public:
    explicit Arena(const std::function<float(std::uint64_t)>& value)
        : buffer_(arena_bytes, "benchmark arena") {
        const auto values = buffer_.as<float>();
        // One megabyte of such numbers, repeated: subnormals and NaN would measure something else.
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = i < (1u << 18) ? value(i) : values[i - (1u << 18)];
    }
    template <class T = float>
    T* take(std::int64_t count) {
        const std::int64_t bytes = (count * static_cast<std::int64_t>(sizeof(T)) + 4095) / 4096 * 4096;
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
    Arena in{normal};
    Arena in2{normal};
    Arena out{normal};
    Arena state{uniform};
    std::vector<float> small = std::vector<float>(1 << 20, 1.0f);
    std::vector<float> small2 = std::vector<float>(1 << 20, 0.5f);
    std::vector<float> work = std::vector<float>(8 << 20);
    std::vector<std::int32_t> ids;
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
};

// GPT-2 124M at 4 x 1,024 tokens: rows of 768 channels, 3,072 in the feed-forward, 50,304 logits.
constexpr std::int64_t rows = 4096;
constexpr std::int64_t C = 768;
constexpr std::int64_t flat = 8 << 20;
constexpr std::int64_t logit_rows = 128;
constexpr std::int64_t V = 50304;

void add_norm_kernels(std::vector<Kernel>& all) {
    all.push_back({"layer_norm f32", rows * C * 8, [](const Run& r) {
                       Memory& m = r.memory;
                       layer_norm(r.kernels,
                                  {.rows = rows,
                                   .channels = C,
                                   .x = {m.in.take(rows * C)},
                                   .gamma = m.small.data(),
                                   .beta = m.small2.data(),
                                   .y = {m.out.take(rows * C)},
                                   .mean = m.work.data(),
                                   .rstd = m.work.data() + rows},
                                  r.pool);
                   }});
    all.push_back({"layer_norm f32 to bf16", rows * C * 6, [](const Run& r) {
                       Memory& m = r.memory;
                       layer_norm(r.kernels,
                                  {.rows = rows,
                                   .channels = C,
                                   .x = {m.in.take(rows * C)},
                                   .gamma = m.small.data(),
                                   .beta = m.small2.data(),
                                   .y = {m.out.take<BF16>(rows * C), DType::bf16},
                                   .mean = m.work.data(),
                                   .rstd = m.work.data() + rows},
                                  r.pool);
                   }});
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

void add_softmax_kernels(std::vector<Kernel>& all) {
    constexpr std::int64_t T = 1024;
    constexpr std::int64_t heads = 8;
    for (const SoftmaxMask mask : {SoftmaxMask::none, SoftmaxMask::causal}) {
        const bool causal = mask == SoftmaxMask::causal;
        // Causal reads the lower half and writes all.
        const std::int64_t read = heads * T * (causal ? T / 2 : T) * 4;
        const std::int64_t written = heads * T * T * 4;
        all.push_back({causal ? "softmax causal f32" : "softmax f32", read + written, [mask](const Run& r) {
                           softmax(r.kernels,
                                   {.rows = heads * T,
                                    .columns = T,
                                    .mask = mask,
                                    .queries = T,
                                    .x = {r.memory.in.take(heads * T * T)},
                                    .y = {r.memory.out.take(heads * T * T)}},
                                   r.pool);
                       }});
        all.push_back({causal ? "softmax_grad causal f32" : "softmax_grad f32", 2 * read + written,
                       [mask](const Run& r) {
                           softmax_grad(r.kernels,
                                        {.rows = heads * T,
                                         .columns = T,
                                         .mask = mask,
                                         .queries = T,
                                         .y = {r.memory.in.take(heads * T * T)},
                                         .dy = {r.memory.in2.take(heads * T * T)},
                                         .dx = {r.memory.out.take(heads * T * T)}},
                                        r.pool);
                       }});
    }
}

void add_gelu_kernels(std::vector<Kernel>& all) {
    const auto add = [&](const char* name, GeluForm form, DType type) {
        const auto size = static_cast<std::int64_t>(size_of(type));
        all.push_back({name, flat * 2 * size, [=](const Run& r) {
                           gelu(r.kernels,
                                {.count = flat,
                                 .form = form,
                                 .x = {r.memory.in.take<char>(flat * size), type},
                                 .y = {r.memory.out.take<char>(flat * size), type}},
                                r.pool);
                       }});
    };
    add("gelu tanh f32", GeluForm::tanh, DType::f32);
    add("gelu tanh bf16", GeluForm::tanh, DType::bf16);
    add("gelu exact f32", GeluForm::exact, DType::f32);
    for (const GeluForm form : {GeluForm::tanh, GeluForm::exact})
        all.push_back({form == GeluForm::tanh ? "gelu_grad tanh f32" : "gelu_grad exact f32", flat * 12,
                       [form](const Run& r) {
                           gelu_grad(r.kernels,
                                     {.count = flat,
                                      .form = form,
                                      .x = {r.memory.in.take(flat)},
                                      .dy = {r.memory.in2.take(flat)},
                                      .dx = {r.memory.out.take(flat)}},
                                     r.pool);
                       }});
}

void add_loss_kernels(std::vector<Kernel>& all) {
    all.push_back({"cross_entropy f32", logit_rows * V * 4, [](const Run& r) {
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
                   }});
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
                                       .accumulate = Accumulate::add},
                                      r.pool);
                   }});
}

void add_update_kernels(std::vector<Kernel>& all) {
    for (const bool with_copy : {false, true})
        all.push_back(
            {with_copy ? "adamw + bf16 copy" : "adamw", flat * (with_copy ? 30 : 28),
             [with_copy](const Run& r) {
                 Memory& m = r.memory;
                 float* p = m.in.take(flat);
                 float* m1 = m.in2.take(flat);
                 float* m2 = m.state.take(flat);
                 BF16* copy = with_copy ? m.out.take<BF16>(flat) : nullptr;
                 adamw(r.kernels,
                       {.count = flat,
                        .step = {.learning_rate = 0, .beta1 = 1, .beta2 = 1, .eps = 1, .weight_decay = 0},
                        .gradient = {m.out.take(flat)},
                        .parameter_in = p,
                        .moment1_in = m1,
                        .moment2_in = m2,
                        .parameter = p,
                        .moment1 = m1,
                        .moment2 = m2,
                        .copy_in = {copy, DType::bf16},
                        .copy = {copy, DType::bf16}},
                       r.pool);
             }});
    all.push_back({"squared_norm f32 (read only)", flat * 4, [](const Run& r) {
                       benchmark::DoNotOptimize(
                           squared_norm(r.kernels,
                                        {.count = flat,
                                         .x = {r.memory.in.take(flat)},
                                         .workspace = reinterpret_cast<double*>(r.memory.work.data())},
                                        r.pool));
                   }});
    all.push_back({"column_sum f32 (read only)", rows * 3072 * 4, [](const Run& r) {
                       column_sum(r.kernels,
                                  {.rows = rows,
                                   .channels = 3072,
                                   .x = {r.memory.in.take(rows * 3072)},
                                   .sum = r.memory.work.data(),
                                   .workspace = r.memory.work.data() + 4096},
                                  r.pool);
                   }});
}

void add_movement_kernels(std::vector<Kernel>& all) {
    const auto add_cast = [&](const char* name, DType from, DType to) {
        const auto read = static_cast<std::int64_t>(size_of(from));
        const auto written = static_cast<std::int64_t>(size_of(to));
        all.push_back({name, flat * (read + written), [=](const Run& r) {
                           cast(r.kernels,
                                {.count = flat,
                                 .x = {r.memory.in.take<char>(flat * read), from},
                                 .y = {r.memory.out.take<char>(flat * written), to}},
                                r.pool);
                       }});
    };
    add_cast("cast f32 to bf16", DType::f32, DType::bf16);
    add_cast("cast bf16 to f32", DType::bf16, DType::f32);
    add_cast("cast f32 to f16", DType::f32, DType::f16);
    for (const int size : {4, 2})
        all.push_back({size == 4 ? "transpose 4096 x 3072 f32" : "transpose 4096 x 3072 bf16",
                       rows * 3072 * size * 2, [size](const Run& r) {
                           transpose(r.kernels,
                                     {.rows = rows,
                                      .columns = 3072,
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
    add_softmax_kernels(all);
    add_gelu_kernels(all);
    add_loss_kernels(all);
    add_update_kernels(all);
    add_movement_kernels(all);
    return all;
}

/// What one thread does is timed by its own CPU clock, which other programs on the machine do not stretch
/// (though they take memory bandwidth and cache); what several do, by the wall's.
double seconds_now(int threads) {
    timespec now{};
    ::clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_of(int threads, const std::function<void()>& work) {
    const double start = seconds_now(threads);
    work();
    return seconds_now(threads) - start;
}

void measure(benchmark::State& state, const Kernel& kernel, const RowKernels& level, int threads) {
    static Memory memory;
    static ThreadPool one(1);
    static ThreadPool two(2);
    ThreadPool& pool = threads == 1 ? one : two;
    const Run run = {level, pool, memory};
    const auto copy_once = [&](Stores stores) {
        const Copy problem = {.bytes = copy_bytes,
                              .source = memory.in.take(copy_bytes / 4),
                              .target = memory.out.take(copy_bytes / 4)};
        return seconds_of(threads, [&] { copy(level, problem, pool, stores); });
    };
    kernel.run(run);
    std::vector<double> plain, streaming, times;
    for (auto _ : state) {
        plain.push_back(copy_once(Stores::plain));
        streaming.push_back(copy_once(Stores::streaming));
        times.push_back(seconds_of(threads, [&] { kernel.run(run); }));
        state.SetIterationTime(times.back());
    }
    const double copy_rate = 2 * static_cast<double>(copy_bytes) / std::min(median(plain), median(streaming));
    const double rate = static_cast<double>(kernel.bytes) / median(times);
    state.counters["GB_s"] = rate * 1e-9;
    state.counters["copy_GB_s"] = copy_rate * 1e-9;
    state.counters["share_of_copy"] = rate / copy_rate;
    const auto least = [](const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); };
    const double best_copy = std::min(least(plain), least(streaming)) / (2 * static_cast<double>(copy_bytes));
    state.counters["share_best"] = best_copy * static_cast<double>(kernel.bytes) / least(times);
    state.counters["median_ms"] = median(times) * 1e3;
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
                    ->Iterations(15)
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
