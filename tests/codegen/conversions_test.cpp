// Conversions of FP16 in generated code: the bits of numerics/formats.h at every level, with F16C and
// without.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/numerics/formats.h"
#include "tests/support/fused_graph.h"
#include "tests/support/run_graph.h"
#include "tests/support/telling_bits.h"

namespace mantissa {
namespace {

using testing::device_at;
using testing::fused;
using testing::levels;
using testing::run;

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& numbers) {
    const auto bytes = std::as_bytes(std::span(numbers));
    return {bytes.begin(), bytes.end()};
}

template <class T>
std::vector<T> numbers_of(const std::vector<std::byte>& bytes) {
    std::vector<T> numbers(bytes.size() / sizeof(T));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
}

/// With every cast in a fused kernel.
Graph compiled(const Graph& graph) {
    Graph one = fused(graph);
    for (std::size_t id = 0; id < one.size(); ++id)
        EXPECT_NE(one.node(static_cast<NodeId>(id)).op->name, "cast") << "it is not compiled";
    return one;
}

/// In rows of 37, so that the last lanes of each are masked.
Tensor rows_of(Graph& graph, std::size_t count, DType dtype) {
    return {graph, graph.add_input("x", {dtype, {static_cast<std::int64_t>(count / 37), 37}})};
}

/// In whole rows of 37: the first ones once more.
template <class T>
std::vector<T> in_rows(std::vector<T> numbers) {
    for (std::size_t i = 0; numbers.size() % 37 != 0; ++i) numbers.push_back(numbers[i]);
    return numbers;
}

TEST(Conversions, WidenEveryFp16NumberToTheBit) {
    if (!device_at(levels().back())->target().cannot_compile.empty())
        GTEST_SKIP() << "this build has no compiler for fused kernels";
    std::vector<std::uint16_t> halves(65536);
    for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
    halves = in_rows(halves);
    Graph graph;
    graph.add_result("wide", cast(rows_of(graph, halves.size(), DType::f16), DType::f32).value());
    const Graph one = compiled(graph);
    for (const std::string& level : levels()) {
        const auto results = run(one, {{"x", bytes_of(halves)}}, *device_at(level));
        const auto wide = numbers_of<std::uint32_t>(results[0]);
        for (std::size_t i = 0; i < halves.size(); ++i) {
            const float expected = to_f32(FP16{halves[i]});
            ASSERT_EQ(wide[i], std::bit_cast<std::uint32_t>(expected))
                << level << std::hex << " " << halves[i];
        }
    }
}

TEST(Conversions, RoundToFp16ToTheBit) {
    if (!device_at(levels().back())->target().cannot_compile.empty())
        GTEST_SKIP() << "this build has no compiler for fused kernels";
    const std::vector<std::uint32_t> bits = in_rows(testing::telling_bits());
    Graph graph;
    const Tensor half = cast(rows_of(graph, bits.size(), DType::f32), DType::f16);
    graph.add_result("half", half.value());
    graph.add_result("back", cast(half, DType::f32).value());
    const Graph one = compiled(graph);
    for (const std::string& level : levels()) {
        const auto results = run(one, {{"x", bytes_of(bits)}}, *device_at(level));
        const auto halves = numbers_of<std::uint16_t>(results[0]);
        const auto back = numbers_of<std::uint32_t>(results[1]);
        for (std::size_t i = 0; i < bits.size(); ++i) {
            const FP16 expected = to_fp16(std::bit_cast<float>(bits[i]));
            ASSERT_EQ(halves[i], expected.bits) << level << std::hex << " " << bits[i];
            ASSERT_EQ(back[i], std::bit_cast<std::uint32_t>(to_f32(expected)))
                << level << std::hex << " " << bits[i];
        }
    }
}

/// A value that a kernel has once in a row is no vector.
TEST(Conversions, OfSingleNumbersAreThose) {
    if (!device_at(levels().back())->target().cannot_compile.empty())
        GTEST_SKIP() << "this build has no compiler for fused kernels";
    const std::vector<std::uint32_t> bits = testing::telling_bits();
    const auto rows = static_cast<std::int64_t>(bits.size());
    Graph graph;
    const Tensor x{graph, graph.add_input("x", {DType::f32, {rows, 1}})};
    const Tensor half{graph, graph.add_input("half", {DType::f16, {rows, 1}})};
    const Tensor zeros{graph, graph.add_input("zeros", {DType::f32, {rows, 3}})};
    const Tensor any = cast(less(zeros, constant(graph, 1)), DType::f32);
    graph.add_result("wide", select(less(zeros, constant(graph, 1)), cast(half, DType::f32), any).value());
    graph.add_result(
        "back", select(less(zeros, constant(graph, 1)), cast(cast(x, DType::f16), DType::f32), any).value());
    graph.add_result("half", cast(maximum(max(zeros, {1}, KeepAxes::yes), x), DType::f16).value());
    const Graph one = compiled(graph);
    std::vector<std::uint16_t> halves;
    for (const std::uint32_t number : bits) halves.push_back(static_cast<std::uint16_t>(number >> 13));
    for (const std::string& level : levels()) {
        const auto results = run(one,
                                 {{"x", bytes_of(bits)},
                                  {"half", bytes_of(halves)},
                                  {"zeros", bytes_of(std::vector<float>(bits.size() * 3))}},
                                 *device_at(level));
        const auto wide = numbers_of<std::uint32_t>(results[0]), back = numbers_of<std::uint32_t>(results[1]);
        const auto row_halves = numbers_of<std::uint16_t>(results[2]);
        for (std::size_t i = 0; i < bits.size(); ++i) {
            const float number = std::bit_cast<float>(bits[i]);
            ASSERT_EQ(wide[3 * i], std::bit_cast<std::uint32_t>(to_f32(FP16{halves[i]})))
                << level << " " << i;
            ASSERT_EQ(back[3 * i], std::bit_cast<std::uint32_t>(to_f32(to_fp16(number))))
                << level << " " << i;
            if (number < 0 || !std::isnormal(number)) continue;  // of which the largest with 0 is another
            ASSERT_EQ(row_halves[i], to_fp16(number).bits) << level << " " << i;
        }
    }
}

}  // namespace
}  // namespace mantissa
