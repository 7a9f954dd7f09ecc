// Checks that bench/gpu.sh runs on a machine with a GPU: the tests of kernels and of training on a GPU, and
// sweeps of kernels that multiply.
//
//   gpu_checks --gtest_filter=CudaKernels.*      tests, on the machine's GPU if MANTISSA_TEST_GPU is set
//   gpu_checks attention [--small]               milliseconds and TFLOP/s, forward and backward; on Hopper,
//                                                also the speedup by wgmma
//   gpu_checks contraction [--small]             GPT-2 124M's products at 16 x 1,024 tokens, and the speedup
//                                                of cuBLASLt by its own heuristic
//   gpu_checks loss [--small]                    GPT-2 124M's loss and gradients, in 1 to 16 chunks of rows
//
// Operands are random; each time is the median of several runs, each between two events.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cuda/cuda_device.h"
#include "mantissa/numerics/formats.h"

namespace mantissa {
namespace {

using Held = std::unique_ptr<DeviceMemory>;

/// A million random numbers, repeated; indices are 0.
std::vector<std::byte> random_bytes(const Type& type) {
    if (type.dtype == DType::i32) return std::vector<std::byte>(static_cast<std::size_t>(type.bytes()));
    constexpr std::size_t draws = std::size_t{1} << 20;
    const auto count = static_cast<std::size_t>(type.shape.elements());
    const std::size_t size = size_of(type.dtype), drawn = std::min(count, draws);
    const RandomStream random{.seed = 1, .step = 0, .operation = 0};
    std::vector<std::byte> bytes(count * size);
    for (std::size_t i = 0; i < drawn; ++i) {
        const float x = random.normal(i);
        const BF16 short_one = to_bf16(x);
        const FP16 half = to_fp16(x);
        const void* from = type.dtype == DType::bf16  ? static_cast<const void*>(&short_one)
                           : type.dtype == DType::f16 ? static_cast<const void*>(&half)
                                                      : &x;
        std::memcpy(bytes.data() + i * size, from, size);
    }
    for (std::size_t at = drawn * size; at < bytes.size(); at += drawn * size)
        std::memcpy(bytes.data() + at, bytes.data(), std::min(drawn * size, bytes.size() - at));
    return bytes;
}

/// An operation on operands of its own.
class Timed {
  public:
    Timed(Device& device, std::string_view op, const std::vector<Type>& inputs, Attributes attributes)
        : device_(device), attributes_(std::move(attributes)) {
        const Op& row = find_op(op);
        const std::vector<Type> outputs = row.types({row, inputs, attributes_});
        for (const Kernel& kernel : device.kernels(op)) {
            Expected<PreparedKernel> prepared = kernel.prepare({row, inputs, outputs, attributes_});
            if (!prepared) continue;
            prepared_ = std::move(*prepared);
            break;
        }
        if (!prepared_.launch) throw UserError(fmt::format("no kernel for {}", op));
        device.compile_kernels();
        for (const Type& type : inputs) {
            const std::vector<std::byte> bytes = random_bytes(type);
            const auto& memory = held_.emplace_back(device.allocate(bytes.size(), "an operand"));
            device.copy_to_device(memory->data(), bytes);
            launch_.inputs.emplace_back(memory->data(), memory->size());
        }
        for (const Type& type : outputs) {
            const auto bytes = static_cast<std::size_t>(type.bytes());
            launch_.outputs.emplace_back(held_.emplace_back(device.allocate(bytes, "a result"))->data(),
                                         bytes);
        }
        const auto bytes = static_cast<std::size_t>(prepared_.workspace);
        launch_.workspace = {held_.emplace_back(device.allocate(bytes, "a workspace"))->data(), bytes};
        launch_.launch = &prepared_.launch;
    }

    double median_seconds(int runs) {
        const BoundStep step = launch_;
        const std::unique_ptr<Program> program = device_.bind({&step, 1});
        std::vector<double> seconds;
        for (int i = -2; i < runs; ++i) {  // two for warm-up
            const std::unique_ptr<Event> begin = device_.record();
            program->run();
            const std::unique_ptr<Event> end = device_.record();
            device_.wait(*end);
            if (i >= 0) seconds.push_back(device_.seconds_between(*begin, *end));
        }
        std::ranges::sort(seconds);
        return seconds[seconds.size() / 2];
    }

  private:
    Device& device_;
    Attributes attributes_;
    PreparedKernel prepared_;
    std::vector<Held> held_;
    BoundLaunch launch_;
};

/// The device, and one with a different choice; null: there is none.
struct Devices {
    Device& device;
    Device* otherwise;
    std::vector<double> ratios = {};  ///< of times, one per row

    void print_row(const std::string& what, double flops, std::string_view op,
                   const std::vector<Type>& inputs, const Attributes& attributes, int runs) {
        const double seconds = Timed(device, op, inputs, attributes).median_seconds(runs);
        fmt::print("{:<56} {:>10.4f} ms {:>9.1f} TFLOP/s", what, seconds * 1e3, flops / seconds / 1e12);
        if (otherwise) {
            const double other = Timed(*otherwise, op, inputs, attributes).median_seconds(runs);
            fmt::print(" {:>10.4f} ms {:>9.1f} TFLOP/s {:>6.2f} times", other * 1e3, flops / other / 1e12,
                       seconds / other);
            ratios.push_back(seconds / other);
        }
        fmt::print("\n");
    }
    void print_ratios(std::string_view how) {
        std::ranges::sort(ratios);
        fmt::print("{}: {:.2f} to {:.2f} times as quick, median {:.2f}\n", how, ratios.front(), ratios.back(),
                   ratios[ratios.size() / 2]);
    }
};

/// Causal, with heads in the layout of GPT-2's projection; 16,384 tokens at every length.
void sweep_attention(Devices& devices, bool small) {
    const std::int64_t heads = small ? 1 : 12, tokens = small ? 128 : 16384;
    for (const DType dtype : {DType::bf16, DType::f16})
        for (const std::int64_t D : {64, 128})
            for (const std::int64_t T : small ? std::vector<std::int64_t>{128}
                                              : std::vector<std::int64_t>{512, 1024, 2048, 4096, 8192}) {
                const std::int64_t B = tokens / T;
                const Type qkv{dtype, {B, T, 3, heads, D}}, o{dtype, {B, T, heads, D}},
                    lse{DType::f32, {B, heads, T}};
                const Attributes attributes{{"causal", true},
                                            {"operands", std::string("qkv:btphd")},
                                            {"result", std::string("bthd")},
                                            {"scale", 0.125}};
                const double pairs = static_cast<double>(B * heads) * static_cast<double>(T * (T + 1)) / 2;
                const auto name = [&](const char* pass) {
                    return fmt::format("attention {} {} of {} x {} tokens, {} heads of {}", pass,
                                       name_of(dtype), B, T, heads, D);
                };
                const int runs = small ? 1 : 20;
                devices.print_row(name("forward"), pairs * static_cast<double>(4 * D), "attention", {qkv},
                                  attributes, runs);
                devices.print_row(name("backward"), pairs * static_cast<double>(10 * D), "attention_grad",
                                  {o, qkv, o, lse}, attributes, runs);
            }
}

void sweep_contraction(Devices& devices, bool small) {
    struct Format {
        DType dtype;
        bool tf32;
    };
    const std::int64_t M = small ? 32 : 16384, C = small ? 16 : 768, V = small ? 64 : 50304;
    const struct { std::int64_t n, k; } layers[] = {{3 * C, C}, {C, C}, {4 * C, C}, {C, 4 * C}, {V, C}};
    for (const Format format : {Format{DType::bf16, false}, Format{DType::f16, false},
                                Format{DType::f32, true}, Format{DType::f32, false}})
        for (const auto& [n, k] : layers) {
            const auto time = [&](const char* what, Shape a, Shape b, bool ta, bool tb) {
                Attributes attributes{{"transpose_a", ta}, {"transpose_b", tb}};
                if (format.tf32)
                    attributes = {
                        {"multiply", std::string("tf32")}, {"transpose_a", ta}, {"transpose_b", tb}};
                devices.print_row(
                    fmt::format("{} {} {} x {} x {}", what, format.tf32 ? "tf32" : name_of(format.dtype), M,
                                n, k),
                    2.0 * static_cast<double>(M) * static_cast<double>(n) * static_cast<double>(k), "matmul",
                    {{format.dtype, std::move(a)}, {format.dtype, std::move(b)}}, attributes, small ? 1 : 10);
            };
            time("product", {M, k}, {n, k}, false, true);
            time("gradient of the input", {M, n}, {n, k}, false, false);
            time("gradient of the weights", {M, n}, {M, k}, true, false);
        }
}

int sweep_loss(bool small) {
    const std::int64_t rows = small ? 256 : 16384, channels = small ? 16 : 768, classes = small ? 64 : 50304;
    const Type x{DType::bf16, {rows, channels}}, w{DType::bf16, {classes, channels}};
    for (const std::int64_t chunks : {1, 2, 4, 8, 16}) {
        const auto device =
            std::move(*make_cuda_device(std::move(*cuda::find_libraries()), {.loss_chunks = chunks}));
        Devices{*device, nullptr}.print_row(
            fmt::format("loss of {} rows in {} chunks", rows, chunks),
            6.0 * static_cast<double>(rows) * static_cast<double>(channels) * static_cast<double>(classes),
            "linear_cross_entropy", {x, w, {DType::i32, {rows}}, {DType::f32, {}}}, {}, small ? 1 : 10);
    }
    return 0;
}

int run_sweep(std::string_view which, bool small) {
    Expected<std::unique_ptr<Device>> device = make_cuda_device();
    if (!device) {
        fmt::print(stderr, "gpu_checks: {}\n", device.reason());
        return 1;
    }
    if (which == "loss") return sweep_loss(small);
    const bool is_attention = which == "attention";
    const std::string& isa = (*device)->target().isa;
    std::unique_ptr<Device> otherwise;
    if (!is_attention || isa.starts_with("sm_90,"))
        otherwise = std::move(
            *make_cuda_device(std::move(*cuda::find_libraries()),
                              {.warpgroup_attention = is_attention, .first_algorithms = !is_attention}));
    const std::string_view how = is_attention ? "by wgmma" : "cuBLASLt's first";
    fmt::print("{}, {}; behind it {}\n", (*device)->target().name, isa,
               otherwise ? how : "nothing: the GPU has no wgmma");
    Devices devices{**device, otherwise.get()};
    is_attention ? sweep_attention(devices, small) : sweep_contraction(devices, small);
    if (otherwise) devices.print_ratios(how);
    return 0;
}

}  // namespace
}  // namespace mantissa

int main(int argc, char** argv) {
    const std::string_view first = argc > 1 ? argv[1] : "";
    if (first == "attention" || first == "contraction" || first == "loss") {
        try {
            return mantissa::run_sweep(first, argc > 2 && std::string_view(argv[2]) == "--small");
        } catch (const std::exception& error) {
            fmt::print(stderr, "gpu_checks: {}\n", error.what());
            return 1;
        }
    }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
