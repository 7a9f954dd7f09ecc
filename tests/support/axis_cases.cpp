#include "tests/support/axis_cases.h"

#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/scan.h"

namespace mantissa::testing {

namespace {

/// Numbers to sort, with ties, infinities and NaN.
Tensor with_ties(Graph& graph, Tensor x) {
    const Tensor place = iota(graph, {x.dim(-1)}, 0);
    const auto at = [&](int which) { return equal(place, constant(graph, which, DType::i32)); };
    const auto number = [&](double value) { return constant(graph, value, x.dtype()); };
    return select(at(1), number(NAN),
                  select(at(4), number(-INFINITY), select(at(5), number(INFINITY), round(x))));
}

void add_orders(std::vector<OpCase>& cases) {
    for (const Order order : {Order::ascending, Order::descending})
        for (const std::int64_t extent : {1, 2, 7, 65, 300})
            cases.push_back(
                {"argsort",
                 fmt::format("argsort {} of {}", order == Order::ascending ? "up" : "down", extent),
                 {f32({3, extent})},
                 [=](Graph& g, In x) { return std::vector{argsort(with_ties(g, x[0]), 1, order)}; }});
    cases.push_back({"argsort", "argsort of a leading axis", {f32({9, 2, 3})}, [](Graph&, In x) {
                         return std::vector{argsort(round(x[0]), 0)};
                     }});
    cases.push_back({"argsort", "argsort of whole numbers", {ids({2, 70}, 9)}, [](Graph&, In x) {
                         return std::vector{argsort(x[0] - 4.0)};
                     }});
    cases.push_back({"argsort", "sort", {f32({3, 2, 5})}, [](Graph&, In x) {
                         return std::vector{sort(x[0], 0, Order::descending).values};
                     }});
    for (const std::int64_t count : {1, 3, 70})
        cases.push_back({"argsort", fmt::format("top_k of {}", count), {f32({4, 71})}, [=](Graph&, In x) {
                             const Sorted top = top_k(x[0], count);
                             return std::vector{top.values, top.indices};
                         }});
}

void add_images(std::vector<OpCase>& cases) {
    const auto resized = [&](const char* name, Shape shape, std::array<std::int64_t, 2> extents,
                             ResizeOptions options) {
        cases.push_back({"embedding",
                         fmt::format("resize {}", name),
                         {f32(shape)},
                         [=](Graph&, In x) { return std::vector{resize(x[0], extents, options)}; },
                         {2, 2, 2}});
    };
    const ResizeOptions corners{.align_corners = true}, nearest{.sampling = Sampling::nearest};
    resized("to more pixels", {2, 3, 4, 5}, {7, 9}, {});
    resized("to fewer pixels", {2, 7, 9, 2}, {3, 4}, {});
    resized("with corners", {1, 3, 4, 3}, {7, 5}, corners);
    resized("with corners to one", {1, 3, 4, 3}, {1, 4}, corners);
    resized("of one pixel", {2, 1, 1, 3}, {3, 2}, {});
    resized("to the nearest, more", {2, 3, 4, 5}, {7, 8}, nearest);
    resized("to the nearest, fewer", {1, 7, 5, 2}, {3, 2}, nearest);
    // Positions beside the middles of pixels, where the derivative jumps; some outside.
    for (const Sampling sampling : {Sampling::bilinear, Sampling::nearest}) {
        // The nearest pixel is a step function of the grid, so the grid has no gradient to compare.
        const bool in_steps = sampling == Sampling::nearest;
        const Shape places{2, 3, 4, 2};
        const Operand grid = in_steps ? Operand{{DType::i32, places}, Values::index, 15, -15} : f32(places);
        for (const Outside outside : {Outside::zeros, Outside::border})
            for (const bool align : {false, true})
                cases.push_back(
                    {"embedding",
                     fmt::format("grid_sample {} {}{}",
                                 sampling == Sampling::bilinear ? "between" : "nearest",
                                 outside == Outside::zeros ? "zeros" : "border", align ? ", corners" : ""),
                     {f32({2, 4, 5, 3}), grid},
                     [=](Graph&, In x) {
                         const Tensor at = in_steps ? cast(x[1], DType::f32) * 0.1 + 0.03 : x[1];
                         return std::vector{grid_sample(x[0], at, {sampling, outside, align})};
                     },
                     {4, 12, 4}});
    }
}

void add_norms_and_bags(std::vector<OpCase>& cases) {
    cases.push_back({"mul",
                     "group_norm",
                     {f32({2, 3, 5, 6}), f32({6}), f32({6})},
                     [](Graph&, In x) { return std::vector{group_norm(x[0], 3, x[1], x[2])}; },
                     {4, 8, 2}});
    cases.push_back({"mul",
                     "instance_norm",
                     {f32({2, 37, 3}), f32({3}), f32({3})},
                     [](Graph&, In x) { return std::vector{instance_norm(x[0], x[1], x[2])}; },
                     {4, 8, 2}});
    cases.push_back({"mul",
                     "weight_norm",
                     {f32({4, 3, 5}), f32({3})},
                     [](Graph&, In x) { return std::vector{weight_norm(x[0], x[1], 1)}; },
                     {4, 4, 2}});
    for (const Bag bag : {Bag::sum, Bag::mean, Bag::max})
        for (const bool ignoring : {false, true})
            cases.push_back(
                {"embedding",
                 fmt::format("embedding_bag {}{}", static_cast<int>(bag), ignoring ? ", ignoring" : ""),
                 {f32({7, 5}), ids({6, 3}, 7)},
                 [=](Graph&, In x) {
                     BagOptions options{.bag = bag};
                     if (ignoring) options.ignore_id = 2;
                     return std::vector{embedding_bag(x[0], x[1], options)};
                 },
                 {1, 2}});
    cases.push_back({"embedding",
                     "embedding_bag with weights",
                     {f32({7, 5}), ids({4, 3}, 7), f32({4, 3})},
                     [](Graph&, In x) {
                         return std::vector{embedding_bag(x[0], x[1], {.bag = Bag::sum, .weights = x[2]})};
                     },
                     {2, 4}});
}

/// Groups with many rows, one and none; some rows belong to none.
void add_groups(std::vector<OpCase>& cases) {
    const auto counts = [](Graph& g) { return literal(g, {5, 0, 1, 9}, DType::i32, {4}); };
    for (const bool transposed : {false, true})
        for (const std::int64_t K : {1, 13, 70})
            cases.push_back({"grouped_matmul",
                             fmt::format("grouped_matmul of depth {}{}", K, transposed ? ", transposed" : ""),
                             {f32({17, K}), f32(transposed ? Shape{4, 11, K} : Shape{4, K, 11})},
                             [=](Graph& g, In x) {
                                 return std::vector{grouped_matmul(x[0], x[1], counts(g),
                                                                   transposed
                                                                       ? GroupedWeights::transposed
                                                                       : GroupedWeights::as_multiplied)};
                             },
                             {1, static_cast<double>(K)}});
    cases.push_back({"grouped_outer",
                     "grouped_outer",
                     {f32({17, 7}), f32({17, 11})},
                     [=](Graph& g, In x) {
                         return std::vector{call1("grouped_outer", {x[0], x[1], counts(g)})};
                     },
                     {1, 10}});
    cases.push_back({"grouped_matmul",
                     "a mixture of experts",
                     {f32({9, 4}), f32({9, 6}), f32({4, 6, 5})},
                     [](Graph&, In x) {
                         const Routed to = route(x[0], 2);
                         const Tensor y = grouped_matmul(take(x[1], 0, to.source), x[2], to.counts);
                         const Tensor shares = reshape(softmax(gather(x[0], 1, to.experts)), {9, 2, 1});
                         return std::vector{sum(take(y, 0, to.place) * cast(shares, y.dtype()), {1})};
                     },
                     {16, 40, 4}});
}

/// A recurrence of two states over a sequence, with a matrix, a vector and a number that every step reads
/// whole.
Scanned recurrence(In x, Steps steps) {
    const auto step = [](std::span<const Tensor> s, std::span<const Tensor> parts,
                         std::span<const Tensor> whole) -> ScanStep {
        const Tensor h = tanh(parts[0] + matmul(s[0], whole[0], {.transpose_b = true}) + whole[1]);
        const Tensor total = s[1] * whole[2] + h * parts[1];
        return {.states = {h, total}, .outputs = {total * h}};
    };
    return scan(std::vector{x[0], x[1]}, std::vector{x[2], x[3]}, std::vector{x[4], x[5], x[6]}, step, steps);
}

void add_loops(std::vector<OpCase>& cases) {
    for (const Steps steps : {Steps::forward, Steps::backward})
        for (const std::int64_t T : {1, 5})
            cases.push_back(
                {"scan",
                 fmt::format("scan of {} {}", T, steps == Steps::forward ? "on" : "back"),
                 {f32({3, 4}), f32({3, 4}), f32({T, 3, 4}), f32({T, 3, 1}), f32({4, 4}), f32({4}), f32({})},
                 [=](Graph&, In x) {
                     const Scanned all = recurrence(x, steps);
                     return std::vector{all.states[0], all.states[1], all.outputs[0]};
                 },
                 {16, 60, 32}});
    // Without steps only the states remain; a state that is passed on, or given twice, is copied.
    cases.push_back({"scan", "scan of nothing", {f32({3, 4}), f32({0, 2})}, [](Graph&, In x) {
                         const auto step = [](std::span<const Tensor> s, std::span<const Tensor>,
                                              std::span<const Tensor>) -> ScanStep {
                             return {.states = {s[0]}, .outputs = {}};
                         };
                         return std::vector{scan({&x[0], 1}, {&x[1], 1}, {}, step).states[0]};
                     }});
    cases.push_back({"scan",
                     "scan that passes on",
                     {f32({3}), f32({3}), f32({4, 3})},
                     [](Graph&, In x) {
                         const auto step = [](std::span<const Tensor> s, std::span<const Tensor> parts,
                                              std::span<const Tensor>) -> ScanStep {
                             const Tensor sum = s[1] + parts[0];
                             return {.states = {s[1], sum}, .outputs = {sum, s[0], reshape(sum, {3, 1})}};
                         };
                         const Scanned all = scan(std::vector{x[0], x[1]}, {&x[2], 1}, {}, step);
                         std::vector<Tensor> given = all.states;
                         given.insert(given.end(), all.outputs.begin(), all.outputs.end());
                         return given;
                     },
                     {4, 8, 8}});
}

}  // namespace

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
        one("cumsum", "cumsum of few", {3, 13}, [](Tensor x) { return cumsum(x, 1); }, {1, 14}),
        one("cumsum", "cumsum of one", {4, 1}, [](Tensor x) { return cumsum(x, 1); }, {1, 1}),
        one("cumsum", "cumsum of a middle axis", {2, 37, 3}, [](Tensor x) { return cumsum(x, -2); }, {1, 40}),
        one("cumsum", "cumsum of many", {2, 531}, [](Tensor x) { return cumsum(x * 0.0078125, 1); }, {1, 60}),
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
    // Integers with bits that are tiny numbers, infinities and NaN as FP32.
    const std::int64_t most = std::int64_t{1} << 31;
    const Operand whole{{DType::i32, {6, 4}}, Values::index, most, -most};
    cases.push_back({"embedding", "take of whole numbers", {whole, ids({2, 3}, 6)}, [](Graph&, In x) {
                         return std::vector{take(x[0], 0, x[1])};
                     }});
    cases.push_back({"embedding", "gather of whole numbers", {whole, ids({6, 3}, 4)}, [](Graph&, In x) {
                         return std::vector{gather(x[0], 1, x[1])};
                     }});
    for (const std::int64_t extent : {3, 1})
        cases.push_back({"embedding_grad",
                         fmt::format("scatter_add over {}", extent),
                         {f32({4, extent, 2}), ids({4, 9, 2}, extent), f32({4, 9, 2})},
                         [](Graph&, In x) { return std::vector{scatter_add(x[0], 1, x[1], x[2])}; },
                         {0, 10}});
    add_orders(cases);
    add_images(cases);
    add_norms_and_bags(cases);
    add_groups(cases);
    add_loops(cases);
    return cases;
}

}  // namespace mantissa::testing
