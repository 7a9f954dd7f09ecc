// Products and additions that are made in one: which are, and which are not.
#include "mantissa/passes/contract_products.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "tests/support/random_graph.h"

namespace mantissa {
namespace {

/// The rest of a graph's text behind its two inputs, f32[2] or of another type.
std::string contracted(DType dtype, const std::function<Tensor(Tensor, Tensor)>& make) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {dtype, {2}})), y(graph, graph.add_input("y", {dtype, {2}}));
    graph.add_result("r", make(x, y).value());
    const Graph once = contract_products(graph);
    verify(once, "contract_products");
    EXPECT_EQ(print(contract_products(once)), print(once)) << "a second run changes nothing";
    const std::string text = print(once);
    return text.substr(text.find('\n', text.find('\n') + 1) + 1);
}

TEST(ContractProducts, AProductThatOneAdditionReadsIsMadeInOneWithIt) {
    EXPECT_EQ(contracted(DType::f32, [](Tensor x, Tensor y) { return x + x * y; }),
              "%2: f32[2] = fma(%x, %y, %x)\nresult r = %2\n");
    EXPECT_EQ(contracted(DType::f32, [](Tensor x, Tensor y) { return (x + y * y) + x * y; }),
              "%2: f32[2] = fma(%y, %y, %x)\n%3: f32[2] = fma(%x, %y, %2)\nresult r = %3\n");
}

TEST(ContractProducts, ATermThatIsAddedTwiceIsDoubled) {
    EXPECT_EQ(contracted(DType::f32, [](Tensor x, Tensor y) { return (x + y) + x; }),
              "%3: f32[2] = fma(%x, 2, %y)\nresult r = %3\n");
}

/// A product that others read, too, must stay for them; shorter formats round it.
TEST(ContractProducts, OthersStay) {
    EXPECT_EQ(contracted(DType::f32,
                         [](Tensor x, Tensor y) {
                             const Tensor product = x * y;
                             return (product + y) / product;
                         }),
              "%2: f32[2] = mul(%x, %y)\n%3: f32[2] = add(%2, %y)\n%4: f32[2] = div(%3, %2)\n"
              "result r = %4\n");
    for (const DType dtype : {DType::bf16, DType::f16, DType::f64})
        EXPECT_EQ(contracted(dtype, [](Tensor x, Tensor y) { return x * y + x; }).find("fma"),
                  std::string::npos)
            << name_of(dtype);
}

TEST(ContractProducts, TheVerifierTakesRandomGraphsAndASecondRunChangesNothing) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        const Graph once = contract_products(testing::RandomGraph(seed).graph);
        verify(once, "contract_products");
        ASSERT_EQ(print(contract_products(once)), print(once)) << "seed " << seed;
    }
}

}  // namespace
}  // namespace mantissa
