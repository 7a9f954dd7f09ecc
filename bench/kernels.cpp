// All kernels that take an operation's problem, compared: the first of the list, which plans run, in turns
// with each other kernel and with itself; the rate of the latter is the spread. Large problems exceed the
// last cache.
//
//   bench_kernels [PATTERN]     BENCH_TURNS (9), BENCH_THREADS (1). MANTISSA_ISA chooses the level.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/op.h"
#include "mantissa/numerics/formats.h"

namespace mantissa {
namespace {

struct Case {
    const char* op;
    std::vector<Type> inputs;
    Attributes attributes = {};
    std::int64_t ids_below = 1;
};

Type f32(Shape shape) { return {DType::f32, std::move(shape)}; }
Type bf16(Shape shape) { return {DType::bf16, std::move(shape)}; }

/// Memory of operands: uniform numbers, ids, true.
std::vector<Buffer> filled(const std::vector<Type>& types, std::int64_t ids_below) {
    std::vector<Buffer> buffers;
    const RandomStream random{.seed = 1, .step = 0, .operation = 0};
    for (const Type& type : types) {
        Buffer& buffer =
            buffers.emplace_back(static_cast<std::size_t>(std::max<std::int64_t>(64, type.bytes())));
        const auto fill = [&](auto values, auto value) {
            constexpr std::size_t period = 1 << 16;
            for (std::size_t i = 0; i < values.size(); ++i)
                values[i] = i < period ? value(i) : values[i - period];
        };
        const auto number = [&](std::size_t i) { return random.uniform(i) + 0.25f; };
        if (type.dtype == DType::i32)
            fill(buffer.as<std::int32_t>(), [&](std::size_t i) {
                return static_cast<std::int32_t>(random.bits(i) % static_cast<std::uint64_t>(ids_below));
            });
        else if (type.dtype == DType::boolean)
            fill(buffer.as<bool>(), [](std::size_t) { return true; });
        else if (type.dtype == DType::f64)
            fill(buffer.as<double>(), [](std::size_t) { return 3.0; });
        else if (type.dtype == DType::bf16)
            fill(buffer.as<BF16>(), [&](std::size_t i) { return to_bf16(number(i)); });
        else
            fill(buffer.as<float>(), number);
    }
    return buffers;
}

/// A kernel made for a case.
struct Made {
    std::string name;
    PreparedKernel kernel;
};

void compare(Device& device, const Case& of) {
    const Op& op = find_op(of.op);
    const std::vector<Type> outputs = op.types({op, of.inputs, of.attributes});
    const Problem problem{.op = op, .inputs = of.inputs, .outputs = outputs, .attributes = of.attributes};
    std::vector<Made> all;
    for (const Kernel& kernel : device.kernels(of.op))
        if (Expected<PreparedKernel> made = kernel.prepare(problem);
            made && (kernel.name != "plain loop" || of.op == std::string("sum")))
            all.push_back({kernel.name, std::move(*made)});
    device.compile_kernels();
    const std::vector<Buffer> read = filled(of.inputs, of.ids_below);
    std::vector<Buffer> written = filled(outputs, 1);
    std::int64_t bytes = 0;
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    for (std::size_t i = 0; i < read.size(); ++i) {
        from.push_back(read[i].data());
        bytes += of.inputs[i].bytes();
    }
    for (std::size_t i = 0; i < written.size(); ++i) {
        const int over = op.written_over(of.attributes, of.inputs.size(), i);
        to.push_back(over < 0 ? written[i].data()
                              : const_cast<std::byte*>(from[static_cast<std::size_t>(over)]));
        bytes += outputs[i].bytes();
    }
    const std::int64_t calls = std::max<std::int64_t>(1, (16 << 20) / bytes);
    const int threads = device.target().threads;
    const auto seconds = [&](const Made& made, Buffer& workspace) {
        const Operands operands{
            .inputs = from, .outputs = to, .workspace = workspace.data(), .kept = nullptr};
        return on_cpu::seconds_of(threads, [&] {
            for (std::int64_t call = 0; call < calls; ++call) made.kernel.launch(operands);
        });
    };
    std::vector<Buffer> workspaces;
    for (const Made& made : all) {
        workspaces.emplace_back(static_cast<std::size_t>(std::max<std::int64_t>(64, made.kernel.workspace)));
        seconds(made, workspaces.back());
    }
    std::vector<std::vector<double>> times(all.size() + 1);
    for (int turn = 0, turns = on_cpu::option("BENCH_TURNS", 9); turn < turns; ++turn) {
        for (std::size_t i = 0; i < all.size(); ++i) times[i].push_back(seconds(all[i], workspaces[i]));
        times.back().push_back(seconds(all[0], workspaces[0]));
    }
    std::string text;
    for (const Type& type : of.inputs)
        if (type.shape.rank() > 0) text += (text.empty() ? "" : ", ") + type.text();
    const double first = on_cpu::median(times[0]);
    fmt::print("{:20} {:60.60} {} {:.3f} ms, {:.2f} GB/s, again {:.2f}", of.op, text, all[0].name,
               1e3 * first / static_cast<double>(calls), 1e-9 * static_cast<double>(bytes * calls) / first,
               first / on_cpu::median(times.back()));
    for (std::size_t i = 1; i < all.size(); ++i)
        fmt::print("; {} has {:.2f} of its speed", all[i].name, first / on_cpu::median(times[i]));
    fmt::print("\n");
    std::fflush(stdout);
}

Case adamw(std::int64_t count, bool copies) {
    Case update{"adamw",
                {f32({count}),
                 f32({count}),
                 f32({count}),
                 f32({count}),
                 f32({}),
                 {DType::f64, {}},
                 f32({}),
                 {DType::boolean, {}}},
                {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", 0.1}}};
    if (copies) update.inputs.push_back(bf16({count}));
    return update;
}

std::vector<Case> cases() {
    constexpr std::int64_t rows = 4096, C = 768, V = 50304, logit_rows = 512, largest = V * C;
    const Attributes norm{{"epsilon", 1e-5}}, classes{{"classes", std::int64_t{50257}}};
    const Type flat = f32({rows, 3072}), scores = f32({12 * 1024, 1024}), targets{DType::i32, {logit_rows}};
    std::vector<Case> all = {
        adamw(largest, false),
        adamw(largest, true),
        adamw(1 << 16, false),
        adamw(768, false),
        {"sgd",
         {f32({largest}),
          f32({largest}),
          f32({}),
          f32({}),
          {DType::boolean, {}},
          f32({largest}),
          {DType::f64, {}},
          bf16({largest})},
         {{"momentum", 0.9}, {"dampening", 0.0}, {"weight_decay", 0.1}, {"nesterov", false}}},
        {"rotary", {f32({4, 1024, 12, 64}), f32({1024, 32}), f32({1024, 32})}},
        {"rotary", {bf16({4, 1024, 12, 64}), f32({1024, 32}), f32({1024, 32})}},
        {"sum", {flat}, {{"axes", std::vector<std::int64_t>{0}}, {"keep", false}}},
        {"sum", {f32({256, 128})}, {{"axes", std::vector<std::int64_t>{0}}, {"keep", false}}},
        {"sum", {flat}, {{"axes", std::vector<std::int64_t>{1}}, {"keep", false}}},
        {"layer_norm", {f32({rows, C}), f32({C}), f32({C})}, norm},
        {"layer_norm", {bf16({rows, C}), f32({C}), f32({C})}, norm},
        {"layer_norm", {f32({64, 128}), f32({128}), f32({128})}, norm},
        {"layer_norm_grad", {f32({rows, C}), f32({rows, C}), f32({C}), f32({rows}), f32({rows})}, norm},
        {"softmax", {scores}},
        {"softmax", {bf16({12 * 1024, 1024})}},
        {"softmax", {f32({256, 100})}},
        {"softmax_grad", {scores, scores}},
        {"gelu", {flat}},
        {"gelu", {bf16({rows, 3072})}},
        {"gelu_grad", {flat, flat}},
        {"relu", {flat}},
        {"relu_grad", {flat, flat}},
        {"cross_entropy", {f32({logit_rows, V}), targets}, classes, 50257},
        {"cross_entropy", {bf16({logit_rows, V}), targets}, classes, 50257},
        {"cross_entropy_grad", {f32({}), f32({logit_rows, V}), targets, f32({logit_rows})}, classes, 50257},
        {"cast", {flat}, {{"dtype", DType::bf16}}},
        {"cast", {bf16({rows, 3072})}, {{"dtype", DType::f32}}},
        {"cast", {flat}, {{"dtype", DType::f16}}},
        {"add", {f32({rows, 3072}), f32({3072})}},
        {"add", {f32({64, 128}), f32({64, 128})}},
        {"select", {{DType::boolean, {rows, 3072}}, flat, flat}},
    };
    for (const char* op : {"add", "mul", "div", "maximum"}) all.push_back({op, {flat, flat}});
    for (const char* op : {"neg", "exp", "log", "tanh", "erf", "sin", "sqrt", "rsqrt"})
        all.push_back({op, {flat}});
    return all;
}

}  // namespace
}  // namespace mantissa

int main(int argc, char** argv) {
    using namespace mantissa;
    const auto device = make_cpu_device({.threads = on_cpu::option("BENCH_THREADS", 1)});
    for (const Case& of : cases())
        if (argc < 2 || std::string(of.op).find(argv[1]) != std::string::npos) compare(*device, of);
}
