// The contraction at the shapes of GPT-2 124M and 4,096 tokens: forward, gradient of the input, gradient of
// the weight, and attention's products; also a small one, which shows a call's fixed cost. FP32 runs on each
// level of this CPU, BF16 on its unit. On tiles, also products made of several BF16 products: TF32 (bf16x3)
// and FP16; `share` then counts one product. One product runs in variations, each with a possible cause of
// lost time changed.
//
// Each measurement is one call between two measurements of one thread's peak on the call's unit. Its share is
// of the larger peak times the threads, since a disturbed peak would flatter. Operands are normal-distributed
// and rotate, so that none is in a cache from the call before. Medians by two clocks are reported: `share` by
// wall time; `share_cpu` by the threads' core time, the one to read on a shared machine. `disturbed` counts
// calls in which the system took a core from one of our threads. Environment: BENCH_THREADS (2), BENCH_CALLS,
// measurements a shape (7).
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "bench/measure.h"
#include "mantissa/base/buffer.h"
#include "mantissa/base/clock.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/peaks.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::on_cpu {
namespace {

ThreadPool& pool() {
    static ThreadPool threads(option("BENCH_THREADS", 2));
    return threads;
}

ThreadPool& one_thread() {
    static ThreadPool thread(1);
    return thread;
}

enum class Pass { forward, input_gradient, weight_gradient };

constexpr const char* pass_names[] = {"forward", "dX", "dW"};

/// y = x W^T with x [tokens, in], W [out, in]; dx = dy W; dW = dy^T x.
ContractionProblem linear_problem(Pass pass, std::int64_t out, std::int64_t in, DType type) {
    constexpr std::int64_t tokens = 4096;
    ContractionProblem problem;
    const MatrixLayout by_in{.dtype = type, .leading = in}, by_out{.dtype = type, .leading = out};
    MatrixLayout transposed_in = by_in, transposed_out = by_out;
    transposed_in.transpose = transposed_out.transpose = Transpose::yes;
    switch (pass) {
        case Pass::forward:
            problem = {.m = tokens, .n = out, .k = in, .a = by_in, .b = transposed_in, .out = by_out};
            break;
        case Pass::input_gradient:
            problem = {.m = tokens, .n = in, .k = out, .a = by_out, .b = by_in, .out = by_in};
            break;
        case Pass::weight_gradient:
            problem = {.m = out, .n = in, .k = tokens, .a = transposed_out, .b = by_in, .out = by_in};
            break;
    }
    // Gradients of weights are written and summed in FP32.
    if (pass == Pass::weight_gradient) problem.out.dtype = DType::f32;
    problem.threads = pool().threads();
    return problem;
}

/// The unit of a benchmark.
struct Unit {
    Isa isa = Isa::generic;
    DType operands = DType::f32;
    Multiply multiply = Multiply::as_stored;

    bool on_vectors() const { return operands == DType::f32 && multiply == Multiply::as_stored; }
    std::string name() const {
        if (on_vectors()) return std::string(instructions_of(isa));
        const std::string_view unit = mantissa::on_cpu::name_of(bf16_unit(isa));
        return std::string(unit.empty() ? instructions_of(isa) : unit) + "/" + format();
    }
    std::string format() const {
        if (multiply == Multiply::tf32) return "bf16x3";
        return std::string(mantissa::name_of(operands));
    }
    /// The peak of one thread.
    double peak() const {
        const Bf16Unit unit = on_vectors() ? Bf16Unit::none : bf16_unit(isa);
        return unit == Bf16Unit::none ? measured_fma_peak(one_thread(), isa, 0.02)
                                      : measured_bf16_peak(one_thread(), unit, 0.02);
    }
};

enum class Values { normal, zeros };

/// Two sets of operands, of at least 64 MiB together, so that a call finds none of its own in the caches.
class Operands {
  public:
    Operands(const PreparedContraction& prepared, Values values) {
        const ContractionProblem& problem = prepared.problem;
        const std::int64_t entries = problem.batch[0] * problem.batch[1];
        const auto bytes_of = [entries](std::int64_t rows, std::int64_t cols, const MatrixLayout& layout) {
            return entries * rows * cols * static_cast<std::int64_t>(size_of(layout.dtype));
        };
        const std::int64_t a = bytes_of(problem.m, problem.k, problem.a);
        const std::int64_t b = bytes_of(problem.k, problem.n, problem.b);
        const std::int64_t out = bytes_of(problem.m, problem.out.leading, problem.out), bytes = a + b + out;
        bias_ = Buffer(static_cast<std::size_t>(problem.n) * size_of(problem.epilogue.bias_dtype));
        sets_ = static_cast<std::size_t>(std::clamp<std::int64_t>((64 << 20) / bytes + 1, 2, 8));
        for (std::size_t set = 0; set < sets_; ++set) {
            a_.emplace_back(static_cast<std::size_t>(a));
            b_.emplace_back(static_cast<std::size_t>(b));
            out_.emplace_back(static_cast<std::size_t>(out));
            if (values == Values::normal) {
                fill(a_.back(), problem.a.dtype, 1);
                fill(b_.back(), problem.b.dtype, 2);
            }
            if (prepared.kept_bytes() > 0) {
                Buffer panels(prepared.kept_bytes());
                pack_b(prepared, b_.back().data(), panels.as<std::byte>(), pool());
                b_.back() = std::move(panels);
            }
            std::ranges::fill(out_.back().as<std::byte>(), std::byte{0});
        }
    }

    ContractionArguments next() {
        turn_ = (turn_ + 1) % sets_;
        return {
            .a = a_[turn_].data(), .b = b_[turn_].data(), .out = out_[turn_].data(), .bias = bias_.data()};
    }

  private:
    /// Fills with a repeated block of 2^16 normal values.
    static void fill(Buffer& buffer, DType type, std::uint32_t operation) {
        const RandomStream random{.seed = 1, .operation = operation};
        if (type == DType::bf16)
            fill(buffer.as<BF16>(), [&](std::size_t i) { return to_bf16(random.normal(i)); });
        else if (type == DType::f16)
            fill(buffer.as<FP16>(), [&](std::size_t i) { return to_fp16(random.normal(i)); });
        else
            fill(buffer.as<float>(), [&](std::size_t i) { return random.normal(i); });
    }
    template <class Element, class Value>
    static void fill(std::span<Element> values, Value value) {
        static constexpr std::size_t distinct = 1 << 16;
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = i < distinct ? value(i) : values[i - distinct];
    }

    std::size_t sets_ = 2, turn_ = 0;
    std::vector<Buffer> a_, b_, out_;
    Buffer bias_;
};

long preemptions() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nivcsw;
}

void run(benchmark::State& state, const ContractionProblem& problem, Unit unit, Values values) {
    const PreparedContraction prepared = prepare_contraction(problem, unit.isa);
    Operands operands(prepared, values);
    Buffer workspace(prepared.workspace_bytes(pool().threads()));
    const double flops = 2.0 * static_cast<double>(problem.batch[0] * problem.batch[1] * problem.m) *
                         static_cast<double>(problem.n) * static_cast<double>(problem.k);
    contract(prepared, operands.next(), workspace.as<std::byte>(), pool());
    std::vector<double> shares, shares_cpu, seconds;
    int disturbed = 0;
    double before = unit.peak();
    for (auto _ : state) {
        const ContractionArguments arguments = operands.next();
        const long preempted = preemptions();
        const double cpu_start = cpu_seconds();
        const Stopwatch watch;
        contract(prepared, arguments, workspace.as<std::byte>(), pool());
        seconds.push_back(watch.seconds());
        const double on_cores = cpu_seconds() - cpu_start;
        disturbed += preemptions() != preempted;
        const double after = unit.peak();
        const double peak = std::max(before, after);
        shares.push_back(flops / seconds.back() / (peak * pool().threads()));
        shares_cpu.push_back(flops / on_cores / peak);
        before = after;
        state.SetIterationTime(seconds.back());
    }
    state.counters["share"] = median(shares);
    state.counters["share_cpu"] = median(shares_cpu);
    state.counters["GFLOP/s"] = flops / median(seconds) * 1e-9;
    state.counters["peak_GF"] = before * pool().threads() * 1e-9;
    state.counters["median_ms"] = median(seconds) * 1e3;
    state.counters["disturbed"] = disturbed;
    if (problem.m == 1) {
        const auto element = static_cast<double>(size_of(problem.b.dtype));
        state.counters["GB/s"] = flops / 2 * element / median(seconds) * 1e-9;
        state.counters["copy_GB/s"] = copy_bandwidth(pool()) * 1e-9;
    }
}

void add(const std::string& name, const ContractionProblem& problem, Unit unit, int calls,
         Values values = Values::normal) {
    benchmark::RegisterBenchmark((unit.name() + "/" + name).c_str(),
                                 [=](benchmark::State& state) { run(state, problem, unit, values); })
        ->UseManualTime()
        ->Iterations(calls)
        ->Unit(benchmark::kMillisecond);
}

void add_linears(Unit unit, int calls) {
    constexpr std::array<std::array<std::int64_t, 2>, 5> shapes{
        {{768, 768}, {2304, 768}, {3072, 768}, {768, 3072}, {50304, 768}}};
    for (const Pass pass : {Pass::forward, Pass::input_gradient, Pass::weight_gradient})
        for (const auto& [out, in] : shapes) {
            ContractionProblem problem = linear_problem(pass, out, in, unit.operands);
            problem.multiply = unit.multiply;
            add(std::string(pass_names[static_cast<int>(pass)]) + "/N:" + std::to_string(out) +
                    "/K:" + std::to_string(in),
                problem, unit, out > 10000 ? std::min(calls, 3) : calls);
        }
}

/// The product before GELU: plain, with a bias, with output rows one cache line further apart, with weights
/// packed before, and with zeros, at which a tile unit's clock is higher.
void add_variations(Unit unit, int calls) {
    const ContractionProblem plain = linear_problem(Pass::forward, 3072, 768, unit.operands);
    ContractionProblem bias = plain, apart = plain, kept = plain;
    bias.epilogue = {.bias = true, .bias_dtype = unit.operands};
    apart.out.leading += 64 / static_cast<std::int64_t>(size_of(unit.operands));
    kept.keeps_b = true;
    const auto add_one = [&](const char* name, const ContractionProblem& problem, Values values) {
        add(std::string("varied/N:3072/K:768/") + name, problem, unit, calls, values);
    };
    add_one("plain", plain, Values::normal);
    add_one("bias", bias, Values::normal);
    add_one("rows_apart", apart, Values::normal);
    add_one("b_packed", kept, Values::normal);
    add_one("zeros", plain, Values::zeros);
}

/// A contraction of some tens of microseconds.
void add_small(Unit unit, int calls) {
    ContractionProblem problem = linear_problem(Pass::forward, 128, 128, unit.operands);
    problem.m = 64;
    add("small/M:64/N:128/K:128", problem, unit, calls);
}

/// The products for generating a token, with matrices in either layout.
void add_rows(Unit unit, int calls) {
    for (const auto& [out, in] : {std::array{3072, 768}, std::array{50304, 768}}) {
        const std::string sizes = "/N:" + std::to_string(out) + "/K:" + std::to_string(in);
        ContractionProblem problem = linear_problem(Pass::forward, out, in, unit.operands);
        problem.m = 1;
        add("row" + sizes, problem, unit, calls);
        problem.b.transpose = Transpose::no;
        problem.b.leading = out;
        add("row" + sizes + "/transposed", problem, unit, calls);
    }
}

/// 4 x 12 heads of 64, 1,024 tokens, head by head: q k^T, p v, and p^T dy.
void add_attention(Unit unit, int calls) {
    constexpr std::int64_t T = 1024, D = 64, heads = 48;
    const MatrixLayout narrow{.dtype = unit.operands, .leading = D, .batch_stride = {0, T * D}};
    const MatrixLayout square{.dtype = unit.operands, .leading = T, .batch_stride = {0, T * T}};
    MatrixLayout narrow_transposed = narrow, square_transposed = square;
    narrow_transposed.transpose = square_transposed.transpose = Transpose::yes;
    ContractionProblem logits{.batch = {1, heads}, .m = T, .n = T, .k = D};
    logits.a = narrow, logits.b = narrow_transposed, logits.out = square;
    ContractionProblem values{.batch = {1, heads}, .m = T, .n = D, .k = T};
    values.a = square, values.b = narrow, values.out = narrow;
    ContractionProblem gradient = values;
    gradient.a = square_transposed;
    add("attention/qk", logits, unit, calls);
    add("attention/pv", values, unit, calls);
    add("attention/ptdy", gradient, unit, calls);
}

}  // namespace
}  // namespace mantissa::on_cpu

int main(int argc, char** argv) {
    using namespace mantissa::on_cpu;
    const int calls = option("BENCH_CALLS", 7);
    std::vector<Unit> units;
    for (const Isa isa : {Isa::avx512, Isa::avx2})
        if (isa <= best_isa()) units.push_back({isa, mantissa::DType::f32});
    const Isa fastest = chosen_isa();
    units.push_back({fastest, mantissa::DType::bf16});
    for (const Unit& unit : units) {
        add_linears(unit, calls);
        if (!unit.on_vectors()) add_variations(unit, calls);
        add_small(unit, calls);
        add_attention(unit, calls);
        add_rows(unit, calls);
    }
    if (fastest == Isa::amx)
        for (const Unit unit :
             {Unit{fastest, mantissa::DType::f32, Multiply::tf32}, Unit{fastest, mantissa::DType::f16}}) {
            add_linears(unit, calls);
            add_attention(unit, calls);
        }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
