// Kernels that the compiler makes of operations, between unreadable pages: a read or write one element beyond
// an operand faults. Their bits are the same at every level and for any number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "mantissa/graph/call.h"
#include "mantissa/graph/op.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/numerics/formats.h"
#include "tests/device/rows_harness.h"
#include "tests/support/run_graph.h"
#include "tests/support/telling_bits.h"

namespace mantissa::on_cpu {
namespace {

struct Operation {
    const char* op;
    std::vector<Type> inputs;
    Attributes attributes = {};
};

Type f32(Shape shape) { return {DType::f32, std::move(shape)}; }

const Type a_flag{DType::boolean, {}}, a_count{DType::f64, {}};

/// Updates of a parameter with a copy in BF16; its operand `a_flag` says whether they are applied.
std::vector<Operation> updates(const Shape& shape) {
    const Type x = f32(shape), number = f32({}), copy{DType::bf16, shape};
    return {
        {"adamw",
         {x, x, x, x, number, a_count, number, a_flag, copy},
         {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"weight_decay", 0.1}}},
        {"sgd",
         {x, x, number, number, a_flag, x, a_count, copy},
         {{"momentum", 0.9}, {"dampening", 0.4}, {"weight_decay", 0.1}, {"nesterov", false}}},
    };
}

/// Rows of a number of columns; the last vector of each is whole, almost whole, or of one element.
std::vector<Operation> operations(std::int64_t columns) {
    const Shape rows{5, columns};
    std::vector<Operation> all = updates(rows);
    const Type x = f32(rows), row = f32({columns}), column = f32({rows[0]}), targets{DType::i32, {rows[0]}};
    const Attributes norm{{"epsilon", 1e-5}};
    const Operation others[] = {
        {"layer_norm", {x, row, row}, norm},
        {"layer_norm_grad", {x, x, row, column, column}, norm},
        {"cross_entropy_grad", {f32({}), x, targets, column}, {{"classes", columns - 1}}},
        {"softmax", {x}},
        {"softmax", {{DType::bf16, rows}}},
        {"softmax_grad", {x, x}},
        {"gelu", {{DType::f16, rows}}},
        {"gelu", {{DType::bf16, rows}}},
        {"gelu_grad", {x, x}},
        {"relu_grad", {{DType::bf16, rows}, {DType::bf16, rows}}},
        {"sum", {x}, {{"axes", std::vector<std::int64_t>{0}}, {"keep", false}}},
        {"add", {x, row}},
        {"mul", {{DType::bf16, rows}, {DType::bf16, rows}}},
        {"select", {{DType::boolean, rows}, x, x}},
        {"cast", {x}, {{"dtype", DType::f16}}},
    };
    all.insert(all.end(), std::begin(others), std::end(others));
    return all;
}

/// Outputs of the compiled kernel of an operation. The first operand may be given less memory than it has.
std::vector<std::byte> run(Device& device, const Setting& setting, const Operation& of,
                           std::int64_t missing = 0) {
    const Op& op = find_op(of.op);
    const std::vector<Type> outputs = op.types({op, of.inputs, of.attributes});
    const Problem problem{.op = op, .inputs = of.inputs, .outputs = outputs, .attributes = of.attributes};
    std::vector<PreparedKernel> made;
    for (const Kernel& kernel : device.kernels(of.op))
        if (kernel.name.starts_with("compiled"))
            if (Expected<PreparedKernel> prepared = kernel.prepare(problem))
                made.push_back(std::move(*prepared));
    EXPECT_EQ(made.size(), 1U) << of.op;
    if (made.size() != 1) return {};
    device.compile_kernels();
    std::vector<std::unique_ptr<Guarded>> read, written;
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    for (const Type& type : of.inputs) {
        const std::int64_t count = type.shape.elements() - (read.empty() ? missing : 0);
        read.push_back(std::make_unique<Guarded>(setting, type.dtype, count));
        std::vector<double> values =
            normal_values(count, DType::f32, 1, static_cast<std::uint32_t>(read.size()));
        if (op.fuser == FuserClass::elementwise && !op.in_place.empty())  // an update's squares and flag
            std::ranges::transform(values, values.begin(), [](double v) { return std::fabs(v); });
        if (type.dtype == DType::boolean)
            std::ranges::transform(values, read.back()->as<bool>(), [](double x) { return x > 0; });
        else if (type.dtype == DType::i32)
            read.back()->assign(std::vector<std::int32_t>(values.size(), 1));
        else
            read.back()->assign(values);
        from.push_back(read.back()->as<std::byte>());
    }
    for (const Type& type : outputs) {
        written.push_back(std::make_unique<Guarded>(setting, type.dtype, type.shape.elements()));
        to.push_back(written.back()->as<std::byte>());
    }
    std::vector<std::byte> workspace(static_cast<std::size_t>(made[0].workspace) + 64), all;
    std::byte* const aligned =
        workspace.data() + (64 - reinterpret_cast<std::uintptr_t>(workspace.data()) % 64) % 64;
    made[0].launch({.inputs = from, .outputs = to, .workspace = aligned, .kept = nullptr});
    for (const auto& output : written) {
        const std::vector<std::byte> bytes = output->bytes();
        all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
}

TEST(CompiledRows, StayWithinTheirOperandsAndHaveTheSameBitsEverywhere) {
    ThreadPool pool(1);
    std::vector<std::unique_ptr<Device>> devices;
    for (const std::string& level : testing::levels())
        for (const int threads : {1, 3}) devices.push_back(testing::device_at(level, threads));
    for (const std::int64_t columns : {4, 15, 16, 17, 97})
        for (const Operation& of : operations(columns)) {
            SCOPED_TRACE(::testing::Message() << of.op << " of " << columns << " columns");
            std::vector<std::byte> first;
            for (const auto& device : devices)
                for (const Placement placement : {Placement::starts_at_guard, Placement::ends_at_guard}) {
                    const Setting setting{row_kernels(Isa::generic), pool, placement, Stores::plain};
                    const std::vector<std::byte> bytes = run(*device, setting, of);
                    if (first.empty()) first = bytes;
                    ASSERT_EQ(bytes, first) << device->target().isa;
                }
        }
}

TEST(CompiledRows, AnUpdateThatIsNotAppliedLeavesNoTrace) {
    const std::int64_t count = 1003;
    ThreadPool pool(1);
    for (const std::string& level : testing::levels())
        for (const Operation& of : updates({count}))
            for (const bool in_place : {true, false}) {
                SCOPED_TRACE(::testing::Message() << level << " " << of.op << " in place: " << in_place);
                const auto device = testing::device_at(level);
                const Op& op = find_op(of.op);
                const std::vector<Type> outputs = op.types({op, of.inputs, of.attributes});
                const PreparedKernel kernel = *device->kernels(of.op)[0].prepare(
                    {.op = op, .inputs = of.inputs, .outputs = outputs, .attributes = of.attributes});
                device->compile_kernels();
                const Setting setting{row_kernels(Isa::generic), pool, Placement::ends_at_guard,
                                      Stores::plain};
                std::vector<std::unique_ptr<Guarded>> read, written;
                std::vector<const std::byte*> from;
                std::vector<std::byte*> to;
                bool* applied = nullptr;
                for (const Type& type : of.inputs) {
                    Guarded& operand = *read.emplace_back(
                        std::make_unique<Guarded>(setting, type.dtype, type.shape.elements()));
                    from.push_back(operand.as<std::byte>());
                    if (type.dtype == DType::boolean)
                        *(applied = operand.as<bool>()) = false;
                    else
                        operand.assign(std::vector<double>(type.shape.elements(), 1.0));
                }
                read[1]->f32()[500] = std::numeric_limits<float>::quiet_NaN();
                std::vector<Guarded*> states;
                std::vector<std::vector<std::byte>> before;
                for (std::size_t i = 0; i < outputs.size(); ++i) {
                    Guarded& state =
                        *read[static_cast<std::size_t>(op.written_over(of.attributes, of.inputs.size(), i))];
                    before.push_back(state.bytes());
                    written.push_back(std::make_unique<Guarded>(setting, outputs[i].dtype, count));
                    states.push_back(in_place ? &state : written.back().get());
                    to.push_back(states.back()->as<std::byte>());
                }
                const Operands operands{.inputs = from, .outputs = to, .workspace = nullptr, .kept = nullptr};
                kernel.launch(operands);
                for (std::size_t i = 0; i < states.size(); ++i) EXPECT_EQ(states[i]->bytes(), before[i]) << i;
                *applied = true;
                kernel.launch(operands);
                EXPECT_TRUE(std::isnan(states[0]->values()[500])) << "applied, the same gradient does harm";
                EXPECT_NE(states[0]->bytes(), before[0]);
            }
}

TEST(CompiledRows, GeluIsZeroOrTheIdentityAtExtremes) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> x{-100, 100, 0, nan, 1e4F, -1e4F}, ones(x.size(), 1.0F);
    for (const std::string& level : testing::levels()) {
        SCOPED_TRACE(level);
        const auto device = testing::device_at(level);
        Graph graph;
        const Type type = f32({static_cast<std::int64_t>(x.size())});
        const Tensor of(graph, graph.add_input("x", type)), dy(graph, graph.add_input("dy", type));
        graph.add_result("y", gelu(of).value());
        graph.add_result("dx", call(graph, "gelu_grad", std::vector{dy, of})[0].value());
        const auto bytes = [](const std::vector<float>& values) {
            const auto all = std::as_bytes(std::span(values));
            return std::vector<std::byte>(all.begin(), all.end());
        };
        const auto results =
            testing::run(graph, testing::Bytes{{"x", bytes(x)}, {"dy", bytes(ones)}}, *device);
        std::vector<float> y(x.size()), dx(x.size());
        std::memcpy(y.data(), results[0].data(), results[0].size());
        std::memcpy(dx.data(), results[1].data(), results[1].size());
        // The exponential is kept finite: what should be zero is x 2^-127.
        const std::vector<float> near{-100 * 0x1p-127F, 100, 0, nan, 1e4F, -1e4F * 0x1p-127F};
        const std::vector<float> slopes{0, 1, 0.5F, nan, 1, 0};
        for (std::size_t i = 0; i < x.size(); ++i) {
            if (std::isnan(x[i])) {
                EXPECT_TRUE(std::isnan(y[i]) && std::isnan(dx[i]));
                continue;
            }
            EXPECT_NEAR(y[i], near[i], 1e-40) << x[i];
            EXPECT_EQ(dx[i], slopes[i]) << x[i];
        }
    }
}

/// The bits of numbers, in another format.
template <class To, class From>
std::vector<To> cast_of(Device& device, DType from, DType to, const std::vector<From>& bits) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {from, {static_cast<std::int64_t>(bits.size())}}));
    graph.add_result("y", cast(x, to).value());
    const auto bytes = std::as_bytes(std::span(bits));
    const auto result = testing::run(graph, testing::Bytes{{"x", {bytes.begin(), bytes.end()}}}, device)[0];
    std::vector<To> cast(bits.size());
    std::memcpy(cast.data(), result.data(), result.size());
    return cast;
}

TEST(CompiledRows, CastsAreTheScalarConversionsOnEveryBit) {
    const std::vector<std::uint32_t> numbers = testing::telling_bits();
    std::vector<std::uint16_t> short_numbers(65536);
    std::iota(short_numbers.begin(), short_numbers.end(), std::uint16_t{0});
    for (const std::string& level : testing::levels()) {
        SCOPED_TRACE(level);
        const auto device = testing::device_at(level);
        const auto bf16 = cast_of<std::uint16_t>(*device, DType::f32, DType::bf16, numbers),
                   f16 = cast_of<std::uint16_t>(*device, DType::f32, DType::f16, numbers);
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            const auto x = std::bit_cast<float>(numbers[i]);
            ASSERT_EQ(bf16[i], to_bf16(x).bits) << std::hex << numbers[i];
            ASSERT_EQ(f16[i], to_fp16(x).bits) << std::hex << numbers[i];
        }
        const auto from_bf16 = cast_of<std::uint32_t>(*device, DType::bf16, DType::f32, short_numbers),
                   from_f16 = cast_of<std::uint32_t>(*device, DType::f16, DType::f32, short_numbers);
        const auto half = cast_of<std::uint16_t>(*device, DType::bf16, DType::f16, short_numbers);
        for (const std::uint16_t x : short_numbers) {
            ASSERT_EQ(from_bf16[x], std::bit_cast<std::uint32_t>(to_f32(BF16{x}))) << x;
            ASSERT_EQ(from_f16[x], std::bit_cast<std::uint32_t>(to_f32(FP16{x}))) << x;
            ASSERT_EQ(half[x], to_fp16(to_f32(BF16{x})).bits) << x;
        }
    }
}

/// The first test notices one lane too many.
TEST(CompiledRowsDeathTest, OneLaneBeyondAnOperandIsCaught) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto overrun = [] {
        ThreadPool pool(1);
        const auto device = testing::device_at(testing::levels().back(), 1);
        const Setting setting{row_kernels(Isa::generic), pool, Placement::ends_at_guard, Stores::plain};
        run(*device, setting, {"softmax_grad", {f32({5, 17}), f32({5, 17})}}, 1);
    };
    EXPECT_DEATH(overrun(), "");
}

}  // namespace
}  // namespace mantissa::on_cpu
