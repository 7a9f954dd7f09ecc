#include "tests/support/axis_cases.h"

#include "mantissa/graph/call.h"

namespace mantissa::testing {

std::vector<OpCase> axis_cases() {
    const auto one = [](const char* op, const char* name, Shape shape, Tensor (*build)(Tensor),
                        Error error = {}) {
        return OpCase{op,
                      name,
                      {f32(std::move(shape))},
                      [build](Graph&, In x) { return std::vector{build(x[0])}; },
                      error};
    };
    std::vector<OpCase> cases = {
        one("slice", "slice with steps", {5, 11}, [](Tensor x) { return slice(x, 1, 1, 10, 3); }),
        one("slice", "slice with steps beyond the end", {7, 3},
            [](Tensor x) { return slice(x, 0, 1, 7, 4); }),
        one("slice", "slice of nothing with steps", {2, 5},
            [](Tensor x) { return x + pad(slice(x, 1, 2, 2, 3), 1, 5, 0); }),
        one("concat", "roll", {4, 7}, [](Tensor x) { return roll(x, -1, -2); }),
        one("concat", "pad by reflection", {3, 6, 2},
            [](Tensor x) { return pad(x, 1, 3, 5, Edges::reflected); }),
        one("concat", "pad by replication", {3, 4},
            [](Tensor x) { return pad(x, -1, 2, 1, Edges::replicated); }),
        one("sum", "cumsum of few", {3, 13}, [](Tensor x) { return cumsum(x, 1); }, {1, 14}),
        one("sum", "cumsum of one", {4, 1}, [](Tensor x) { return cumsum(x, 1); }, {1, 1}),
        one("sum", "cumsum of a middle axis", {2, 37, 3}, [](Tensor x) { return cumsum(x, -2); }, {1, 40}),
        one("sum", "cumsum of many", {2, 531}, [](Tensor x) { return cumsum(x * 0.0078125, 1); }, {1, 60}),
        one("max", "argmax", {5, 21}, [](Tensor x) { return argmax(x, -1); }),
        one("max", "argmax of a leading axis", {9, 4}, [](Tensor x) { return argmax(round(x), 0); }),
    };
    const auto indexed = [&](const char* name, Shape shape, Operand index, Tensor (*build)(Tensor, Tensor)) {
        cases.push_back({"embedding", name, {f32(std::move(shape)), std::move(index)}, [build](Graph&, In x) {
                             return std::vector{build(x[0], x[1])};
                         }});
    };
    indexed("gather", {4, 7}, ids({4, 3}, 7), [](Tensor x, Tensor i) { return gather(x, 1, i); });
    indexed("gather of a middle axis", {2, 5, 3}, ids({2, 6, 3}, 5),
            [](Tensor x, Tensor i) { return gather(x, 1, i); });
    indexed("take of rows", {6, 4}, ids({2, 3}, 6), [](Tensor x, Tensor i) { return take(x, 0, i); });
    indexed("take of a middle axis", {2, 5, 3}, ids({4}, 5),
            [](Tensor x, Tensor i) { return take(x, -2, i); });
    for (const std::int64_t extent : {3, 1})
        cases.push_back({"embedding_grad",
                         fmt::format("scatter_add over {}", extent),
                         {f32({4, extent, 2}), ids({4, 9, 2}, extent), f32({4, 9, 2})},
                         [](Graph&, In x) { return std::vector{scatter_add(x[0], 1, x[1], x[2])}; },
                         {0, 10}});
    return cases;
}

}  // namespace mantissa::testing
