// Functions along an axis that are made of other operations: their numbers as PyTorch has them, at extents
// that are all different, so that a wrong axis, direction or place is seen.
#include <gtest/gtest.h>

#include "tests/support/recording.h"

namespace mantissa {
namespace {

using testing::expect_near;
using testing::expect_same;
using testing::nan;
using testing::Numbers;
using testing::Recording;

/// A result, and the gradient of the sum of its elements times 1, 2, 3, ...; none if empty.
struct Known {
    Tensor y;
    Shape shape;
    Numbers values, gradient;
};

struct AlongAnAxis : Recording {
    const Tensor x = given({2, 3, 2}, {0, 5, 10, 3, 8, 1, 6, 11, 4, 9, 2, 7});

    Tensor ids(Shape shape, Numbers numbers) {
        return given(std::move(shape), std::move(numbers), DType::i32);
    }
    void expect(const std::vector<Known>& all) {
        for (const Known& known : all) {
            SCOPED_TRACE(&known - all.data());
            EXPECT_EQ(known.y.shape(), known.shape);
            expect_near(values(known.y), known.values, 1e-6);
            if (known.gradient.empty()) continue;
            Numbers weights;
            for (std::size_t i = 0; i < known.values.size(); ++i)
                weights.push_back(static_cast<double>(i + 1));
            expect_near(gradient(known.y * given(known.shape, weights), x), known.gradient, 1e-6);
        }
    }
};

TEST(Ir, ReductionsAreOverTheirAxes) {
    AlongAnAxis r;
    const Tensor x = r.x;
    r.expect({
        {sum(x, {1}), {2, 2}, {18, 9, 12, 27}, {1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4}},
        {sum(x, {0, 2}, KeepAxes::yes), {1, 3, 1}, {22, 26, 18}, {1, 1, 2, 2, 3, 3, 1, 1, 2, 2, 3, 3}},
        {mean(x, {0}), {3, 2}, {3, 8, 7, 6, 5, 4}, {0.5, 1, 1.5, 2, 2.5, 3, 0.5, 1, 1.5, 2, 2.5, 3}},
        {mean(x, {1, 2}),
         {2},
         {4.5, 6.5},
         {0.1666667, 0.1666667, 0.1666667, 0.1666667, 0.1666667, 0.1666667, 0.3333333, 0.3333333, 0.3333333,
          0.3333333, 0.3333333, 0.3333333}},
        {max(x, {1}), {2, 2}, {10, 5, 6, 11}, {0, 2, 1, 0, 0, 0, 3, 4, 0, 0, 0, 0}},
        {max(x, {0, 1}), {2}, {10, 11}, {0, 0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0}},
        {softmax(x / 4.0),
         {2, 3, 2},
         {0.2227001, 0.7772999, 0.8519528, 0.1480472, 0.8519528, 0.1480472, 0.2227001, 0.7772999, 0.2227001,
          0.7772999, 0.2227001, 0.7772999},
         {-0.0432762, 0.0432762, -0.03153231, 0.03153231, -0.03153231, 0.03153231, -0.0432762, 0.0432762,
          -0.0432762, 0.0432762, -0.0432762, 0.0432762}},
        {clamp(x, 2.5, 7.5),
         {2, 3, 2},
         {2.5, 5, 7.5, 3, 7.5, 2.5, 6, 7.5, 4, 7.5, 2.5, 7},
         {0, 2, 0, 4, 0, 0, 7, 0, 9, 0, 0, 12}},
    });
}

TEST(Ir, CutsTurnsAndEdgesAreThoseOfPyTorch) {
    AlongAnAxis r;
    const Tensor x = r.x;
    r.expect({
        {roll(x, 0, 1),
         {2, 3, 2},
         {6, 11, 4, 9, 2, 7, 0, 5, 10, 3, 8, 1},
         {7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6}},
        {roll(x, 1, 1),
         {2, 3, 2},
         {8, 1, 0, 5, 10, 3, 2, 7, 6, 11, 4, 9},
         {3, 4, 5, 6, 1, 2, 9, 10, 11, 12, 7, 8}},
        {roll(x, -2, -4),
         {2, 3, 2},
         {10, 3, 8, 1, 0, 5, 4, 9, 2, 7, 6, 11},
         {5, 6, 1, 2, 3, 4, 11, 12, 7, 8, 9, 10}},
        {slice(x, 1, 0, 3, 2), {2, 2, 2}, {0, 5, 8, 1, 6, 11, 2, 7}, {1, 2, 0, 0, 3, 4, 5, 6, 0, 0, 7, 8}},
        {slice(x, 1, 1, 3, 3), {2, 1, 2}, {10, 3, 4, 9}, {0, 0, 1, 2, 0, 0, 0, 0, 3, 4, 0, 0}},
        {slice(reshape(x, {6, 2}), 0, 1, 6, 2),
         {3, 2},
         {10, 3, 6, 11, 2, 7},
         {0, 0, 1, 2, 0, 0, 3, 4, 0, 0, 5, 6}},
        {slice(reshape(x, {2, 6}), -1, 1, 6, 4), {2, 2}, {5, 1, 11, 7}, {0, 1, 0, 0, 0, 2, 0, 3, 0, 0, 0, 4}},
        {pad(x, 1, 1, 2, Edges::replicated),
         {2, 6, 2},
         {0, 5, 0, 5, 10, 3, 8, 1, 8, 1, 8, 1, 6, 11, 6, 11, 4, 9, 2, 7, 2, 7, 2, 7},
         {4, 6, 5, 6, 27, 30, 28, 30, 17, 18, 63, 66}},
        {pad(x, 0, 1, 0, Edges::replicated),
         {3, 3, 2},
         {0, 5, 10, 3, 8, 1, 0, 5, 10, 3, 8, 1, 6, 11, 4, 9, 2, 7},
         {8, 10, 12, 14, 16, 18, 13, 14, 15, 16, 17, 18}},
        {pad(x, 1, 2, 1, Edges::reflected),
         {2, 6, 2},
         {8, 1, 10, 3, 0, 5, 10, 3, 8, 1, 10, 3, 2, 7, 4, 9, 6, 11, 4, 9, 2, 7, 4, 9},
         {5, 6, 21, 24, 10, 12, 17, 18, 57, 60, 34, 36}},
        {pad(x, 2, 0, 1, Edges::reflected),
         {2, 3, 3},
         {0, 5, 0, 10, 3, 10, 8, 1, 8, 6, 11, 6, 4, 9, 4, 2, 7, 2},
         {4, 2, 10, 5, 16, 8, 22, 11, 28, 14, 34, 17}},
    });
}

TEST(Ir, PlacesAlongAnAxisAreThoseOfPyTorch) {
    AlongAnAxis r;
    const Tensor x = r.x;
    const Tensor of_0 = r.ids({1, 3, 2}, {1, 0, 0, 1, 1, 0}),
                 of_1 = r.ids({2, 2, 2}, {2, 0, 1, 1, 2, 2, 0, 1});
    const Tensor of_2 = r.ids({2, 3, 1}, {1, 0, 0, 1, 0, 1}), rows = r.ids({2, 2}, {2, 0, 0, 1});
    const Tensor one = r.ids({1}, {1}), three = r.ids({3}, {1, 1, 0});
    const Tensor parts = r.given({2, 2, 2}, {10, 20, 30, 40, 50, 60, 70, 80});
    const Tensor six = r.given({1, 3, 2}, {10, 20, 30, 40, 50, 60});
    r.expect({
        {argmax(x, 0), {3, 2}, {1, 1, 0, 1, 0, 1}, {}},
        {argmax(x, 1), {2, 2}, {1, 0, 0, 0}, {}},
        {argmax(x, -1), {2, 3}, {1, 0, 0, 1, 1, 1}, {}},
        {argsort(x, 1, Order::descending), {2, 3, 2}, {1, 0, 2, 1, 0, 2, 0, 0, 1, 1, 2, 2}, {}},
        {top_k(x, 2, 1).values, {2, 2, 2}, {10, 5, 8, 3, 6, 11, 4, 9}, {0, 2, 1, 4, 3, 0, 5, 6, 7, 8, 0, 0}},
        {top_k(x, 2, -2).indices, {2, 2, 2}, {1, 0, 2, 1, 0, 0, 1, 1}, {}},
        {sort(x, 0).values,
         {2, 3, 2},
         {0, 5, 4, 3, 2, 1, 6, 11, 10, 9, 8, 7},
         {1, 2, 9, 4, 11, 6, 7, 8, 3, 10, 5, 12}},
        {gather(x, 0, of_0), {1, 3, 2}, {6, 5, 10, 9, 2, 1}, {0, 2, 3, 0, 0, 6, 1, 0, 0, 4, 5, 0}},
        {gather(x, 1, of_1), {2, 2, 2}, {8, 5, 10, 3, 2, 7, 6, 9}, {0, 2, 3, 4, 1, 0, 7, 0, 0, 8, 5, 6}},
        {gather(x, 2, of_2), {2, 3, 1}, {5, 10, 8, 11, 4, 7}, {0, 1, 2, 0, 3, 0, 0, 4, 5, 0, 0, 6}},
        {take(x, 1, rows),
         {2, 2, 2, 2},
         {8, 1, 0, 5, 0, 5, 10, 3, 2, 7, 6, 11, 6, 11, 4, 9},
         {8, 10, 7, 8, 1, 2, 24, 26, 15, 16, 9, 10}},
        {take(x, 2, one), {2, 3, 1}, {5, 3, 1, 11, 9, 7}, {0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6}},
        {take(x, 0, three),
         {3, 3, 2},
         {6, 11, 4, 9, 2, 7, 6, 11, 4, 9, 2, 7, 0, 5, 10, 3, 8, 1},
         {13, 14, 15, 16, 17, 18, 8, 10, 12, 14, 16, 18}},
        {scatter_add(x, 1, of_1, parts),
         {2, 3, 2},
         {0, 25, 40, 43, 18, 1, 76, 11, 4, 89, 52, 67},
         {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
        {scatter_add(x, 0, of_0, six),
         {2, 3, 2},
         {0, 25, 40, 3, 8, 61, 16, 11, 4, 49, 52, 7},
         {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
    });
}

TEST(Ir, TheFirstOfTheGreatestAndTheFirstNanIsFound) {
    Recording r;
    const Tensor x = r.given({3, 4}, {3, 7, 7, 1, 2, nan, 9, nan, -5, -4, -4, -6});
    expect_same(r.values(argmax(x, 1)), {1, 1, 1});
    expect_same(r.values(argmax(x, 0)), {0, 1, 1, 1});
}

TEST(Ir, TruthIsCombined) {
    Recording r;
    const Tensor a = less(r.given({0, 0, 2, 2}), r.given({1, 1, 1, 1}));
    const Tensor b = less(r.given({0, 2, 0, 2}), r.given({1, 1, 1, 1}));
    expect_same(r.values(logical_or(a, b)), {1, 1, 1, 0});
    expect_same(r.values(logical_and(a, b)), {1, 0, 0, 0});
    expect_same(r.values(logical_not(a)), {0, 0, 1, 1});
}

}  // namespace
}  // namespace mantissa
