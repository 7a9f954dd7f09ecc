// The meaning of movement, tables, literals and orders: each test holds a statement of docs/ir.md, which
// names it.
#include <gtest/gtest.h>

#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "mantissa/train/optimizer_update.h"
#include "tests/support/error_of.h"
#include "tests/support/recording.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::expect_same;
using testing::infinity;
using testing::nan;
using testing::Numbers;
using testing::Recording;

TEST(Ir, MovementPutsElementsWhereItSays) {
    Recording r;
    const Tensor x = r.given({2, 3}, {1, 2, 3, 4, 5, 6});
    expect_same(r.values(reshape(x, {3, -1})), {1, 2, 3, 4, 5, 6});
    const Tensor y = transpose(reshape(x, {1, 2, 3}), {2, 0, 1});  // axis i of y is axis order[i] of x
    EXPECT_EQ(y.shape(), (Shape{3, 1, 2}));
    expect_same(r.values(y), {1, 4, 2, 5, 3, 6});
    expect_same(r.values(slice(x, 1, 1, 3)), {2, 3, 5, 6});
    expect_same(r.values(pad(x, 1, 1, 0)), {0, 1, 2, 3, 0, 4, 5, 6});
    expect_same(r.values(split(x, 1, 3)[1]), {2, 5});
    expect_same(r.values(concat(split(x, 0, 2), 1)), {1, 2, 3, 4, 5, 6});
    expect_same(r.values(iota(r.graph, {2, 2}, 1)), {0, 1, 0, 1});
}

TEST(Ir, EmbeddingTakesRowsAndRefusesIdsOutside) {
    Recording r;
    const Tensor table = r.given({3, 2}, {1, 2, 3, 4, 5, 6});
    const Tensor y = embedding(table, r.given({2, 0, 2}, DType::i32));
    expect_same(r.values(y), {5, 6, 1, 2, 5, 6});
    expect_same(r.gradient(y, table), {1, 1, 0, 0, 2, 2});  // a row used twice gets both
    const Tensor whole = r.given({2, 1}, {-2147483648.0, 7}, DType::i32);
    expect_same(r.values(embedding(whole, r.given({1, 0}, DType::i32))), {7, -2147483648.0});
    EXPECT_NE(error_of<UserError>([&] {
                  take(less(table, table), 0, r.given({0}, DType::i32));
              }).find("the table must be floating or i32, got bool[3, 2]; cast it"),
              std::string::npos);
    for (double id : {-1.0, 3.0}) {
        Recording bad;
        embedding(bad.given({3, 1}, {0, 0, 0}), bad.given({id}, DType::i32));
        EXPECT_NE(error_of<UserError>([&] {
                      ReferenceRun(bad.graph, bad.feed);
                  }).find("is outside the table of 3 rows"),
                  std::string::npos);
    }
}

TEST(Ir, WriteSliceWritesAPartAtAPlaceGivenWhenItRuns) {
    Recording r;
    const Tensor x = r.given({2, 3}, {1, 2, 3, 4, 5, 6}), part = r.given({2, 1}, {7, 8});
    expect_same(r.values(write_slice(x, part, r.given(Shape{}, {1.0}, DType::i32), 1)), {1, 7, 3, 4, 8, 6});
    for (double start : {-1.0, 3.0}) {
        Recording bad;
        write_slice(bad.given({2, 3}, Numbers(6)), bad.given({2, 1}, {7, 8}),
                    bad.given(Shape{}, {start}, DType::i32), 1);
        EXPECT_NE(
            error_of<UserError>([&] { ReferenceRun(bad.graph, bad.feed); }).find("is outside an axis of 3"),
            std::string::npos);
    }
}

TEST(Ir, ALiteralIsItsNumbersInRowMajorOrder) {
    Recording r;
    expect_same(r.values(literal(r.graph, {1, 2.5, -3, 0.1, 5, 6}, DType::f32, {2, 3})),
                {1, 2.5, -3, static_cast<double>(0.1f), 5, 6});
    EXPECT_NE(error_of<UserError>([&] {
                  literal(r.graph, {1, 2}, DType::f32, {3});
              }).find("2 values are given for f32[3]"),
              std::string::npos);
}

TEST(Ir, ALiteralHasEveryType) {
    Recording r;
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32,
                              DType::u8, DType::s8, DType::boolean}) {
        SCOPED_TRACE(name_of(dtype));
        const Tensor few = literal(r.graph, {1, 0, 1}, dtype, {3});
        expect_same(r.values(few), {1, 0, 1});
        EXPECT_NE(print(r.graph, few.value().node).find("values=[1, 0, 1]"), std::string::npos);
        EXPECT_EQ(few.dtype(), dtype);
    }
    expect_same(r.values(literal(r.graph, {-128, 127}, DType::s8, {2})), {-128, 127});
    const auto refusal = [&](std::vector<double> numbers, DType dtype) {
        return error_of<UserError>(
            [&] { literal(r.graph, numbers, dtype, {std::ssize(numbers)}, std::source_location{}); });
    };
    EXPECT_EQ(refusal({0.5}, DType::i32), "literal: i32 has no number 0.5");
    EXPECT_EQ(refusal({128}, DType::s8), "literal: s8 has no number 128");
    EXPECT_EQ(refusal({-1}, DType::u8), "literal: u8 has no number -1");
    EXPECT_EQ(refusal({2}, DType::boolean), "literal: bool has no number 2");
    EXPECT_EQ(refusal({9223372036854775808.0}, DType::i64),
              "literal: i64 has no number 9.223372036854776e+18");
    EXPECT_EQ(error_of<UserError>([] { SharedData(DType::f32, std::vector<std::byte>(6)); }),
              "6 bytes are no whole number of f32");
    EXPECT_EQ(error_of<UserError>([] { SharedData(DType::boolean, std::vector{std::byte{3}}); }),
              "a bool is stored as 0 or 1, and another byte is among those given");
}

TEST(Ir, ALiteralThatIsLargeIsPrintedShortAndSharedByWhoeverHoldsIt) {
    std::vector<double> numbers(4096);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i);
    const SharedData data(DType::f32, numbers);
    numbers[4000] += 1;
    const SharedData other(DType::f32, numbers);
    EXPECT_LT(data.text().size(), 64u);
    EXPECT_NE(data.text(), other.text());
    EXPECT_NE(data.text(), SharedData(DType::i32, numbers).text());
    EXPECT_FALSE(data == other);
    Recording r;
    const Tensor x = literal(r.graph, data, {64, 64});
    const Attributes& kept = r.graph.node(x.value().node).attributes;
    EXPECT_EQ(kept.data("values").bytes().data(), data.bytes().data());
    EXPECT_EQ(kept.data("values").number(4095), 4095);
    // Two NaNs that differ have no numbers that tell them.
    const auto of_bits = [](std::uint32_t bits) {
        std::vector<std::byte> bytes(sizeof bits);
        std::memcpy(bytes.data(), &bits, sizeof bits);
        return SharedData(DType::f32, std::move(bytes));
    };
    EXPECT_NE(of_bits(0x7fc00000).text(), of_bits(0x7fc00001).text());
}

TEST(Ir, OrdersAreStableAndNanIsGreatest) {
    Recording r;
    const Tensor x = r.given({2, 5}, {3, nan, -0.0, 0, 3, infinity, -1, -infinity, nan, -1});
    expect_same(r.values(argsort(x)), {2, 3, 0, 4, 1, 2, 1, 4, 0, 3});
    expect_same(r.values(argsort(x, 1, Order::descending)), {1, 0, 4, 2, 3, 3, 0, 1, 4, 2});
    expect_same(r.values(argsort(x, 0)), {0, 1, 1, 0, 1, 1, 0, 0, 1, 0});
    const Sorted top = top_k(x, 3);
    expect_same(r.values(top.indices), {1, 0, 4, 3, 0, 1});
    expect_same(r.values(top.values), {nan, 3, 3, nan, infinity, -1});
    const Tensor y = r.given({4}, {2, 7, 2, 5});
    const Tensor weights = r.given({4}, {10, 20, 30, 40});
    expect_same(r.values(sort(y).values), {2, 2, 5, 7});
    expect_same(r.gradient(sort(y).values * weights, y), {10, 40, 20, 30});
    const auto refusal = [&](auto&& call) { return error_of<UserError>(call); };
    EXPECT_NE(refusal([&] { top_k(x, 6); }).find("the first 6 of 5 elements"), std::string::npos);
    EXPECT_NE(refusal([&] { sort(x, 2); }).find("axis 2 is outside"), std::string::npos);
}

TEST(Ir, ImagesAreReadWhereTheirPixelsLie) {
    Recording r;
    const Tensor line = r.given({1, 1, 3, 1}, {0, 4, 8});
    const auto resized = [&](std::int64_t extent, ResizeOptions options = {}) {
        return r.values(resize(line, {1, extent}, options));
    };
    expect_same(resized(6), {0, 1, 3, 5, 7, 8});
    expect_same(resized(5, {.align_corners = true}), {0, 2, 4, 6, 8});
    expect_same(resized(1, {.align_corners = true}), {0});
    expect_same(resized(5, {.sampling = Sampling::nearest}), {0, 0, 4, 4, 8});
    expect_same(resized(2, {.sampling = Sampling::nearest}), {0, 4});
    const Tensor image = r.given({1, 2, 2, 1}, {1, 2, 3, 4});
    // The middle, a corner pixel's middle, half a pixel beyond the edge, and nowhere.
    const Tensor grid = r.given({1, 1, 4, 2}, {0, 0, -0.5, -0.5, 1, -0.5, 9, 9});
    expect_same(r.values(grid_sample(image, grid)), {2.5, 1, 1, 0});
    expect_same(r.values(grid_sample(image, grid, {.outside = Outside::border})), {2.5, 1, 2, 4});
    expect_same(r.values(grid_sample(image, grid, {.align_corners = true})), {2.5, 1.75, 2.5, 0});
    expect_same(r.values(grid_sample(image, grid, {.sampling = Sampling::nearest})), {1, 1, 0, 0});
}

TEST(Ir, BagsOfRows) {
    Recording r;
    const Tensor table = r.given({3, 2}, {1, 10, 2, 20, 4, 40});
    const Tensor ids = r.given({2, 2}, {0, 2, 1, 1}, DType::i32);
    expect_same(r.values(embedding_bag(table, ids)), {2.5, 25, 2, 20});
    expect_same(r.values(embedding_bag(table, ids, {.bag = Bag::sum, .ignore_id = 1})), {5, 50, 0, 0});
    expect_same(r.values(embedding_bag(table, ids, {.bag = Bag::mean, .ignore_id = 2})), {1, 10, 2, 20});
    expect_same(r.values(embedding_bag(table, ids, {.bag = Bag::max, .ignore_id = 1})), {4, 40, 0, 0});
    const Tensor weights = r.given({2, 2}, {1, 2, 3, -1});
    expect_same(r.values(embedding_bag(table, ids, {.bag = Bag::sum, .weights = weights})), {9, 90, 4, 40});
}

TEST(Ir, GroupsOfRowsMeetMatricesOfTheirOwn) {
    Recording r;
    const Tensor x = r.given({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    const Tensor w = r.given({3, 2, 1}, {1, 0, 9, 9, 0, 1});
    const Tensor counts = r.given({3}, {2, 0, 1}, DType::i32);
    const Tensor y = grouped_matmul(x, w, counts);
    expect_same(r.values(y), {1, 3, 6, 0});
    expect_same(r.gradient(y, w), {4, 6, 0, 0, 5, 6});
    expect_same(r.gradient(y, x), {1, 0, 1, 0, 0, 1, 0, 0});
    const Tensor turned = r.given({3, 1, 2}, {1, 0, 9, 9, 0, 1});
    expect_same(r.values(grouped_matmul(x, turned, counts, GroupedWeights::transposed)), {1, 3, 6, 0});
    // Rows that go to two experts each, and back to their places.
    const Tensor scores = r.given({2, 3}, {0.5, 0.1, 0.4, 0.2, 0.7, 0.1});
    const Routed to = route(scores, 2);
    expect_same(r.values(to.experts), {0, 2, 1, 0});
    expect_same(r.values(to.counts), {2, 1, 1});
    expect_same(r.values(to.source), {0, 1, 1, 0});
    expect_same(r.values(to.place), {0, 3, 2, 1});
}

}  // namespace
}  // namespace mantissa
