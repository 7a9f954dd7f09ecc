// Computations that a device makes as one nest: a composite by its definition, an element-wise operation, a
// reduction; or the reason why a computation is no nest.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "mantissa/base/expected.h"
#include "mantissa/codegen/compiler.h"
#include "mantissa/codegen/loop_nest.h"
#include "mantissa/device/device.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

struct NestBody {
    codegen::LoopNest loops;
    std::int64_t rows = 1, columns = 1;

    std::int64_t elements() const { return rows * columns; }
};

/// Whether a product and the addition that reads it are rounded together, or each.
enum class Products : std::uint8_t { contracted, rounded };

/// The nest of a graph of primitives, whose results a kernel can write.
Expected<NestBody> nest_of_body(const Graph& body, Products products = Products::contracted);

/// The nest of a graph with composites, in primitives.
Expected<NestBody> nest_of_definition(const Graph& definition, Products products = Products::contracted);

/// The computation of an operation, in primitives. An optimizer's update rounds its products, as its kernel
/// did before nests replaced it, so that checkpoints go on to the same bits.
Expected<NestBody> nest_of_operation(const Problem& problem);

/// A kernel that the compiler makes for a unit. `resolve` gives the code that a problem takes. The code is
/// remembered, since many nodes of a graph are one problem; `prepare` asks the compiler for it.
template <class Resolved>
Kernel compiled_kernel(const std::string& unit, std::function<Expected<Resolved>(const Problem&)> resolve,
                       std::function<PreparedKernel(const Problem&, const Resolved&)> prepare) {
    const auto known = std::make_shared<std::map<std::string, Expected<Resolved>>>();
    const auto ready = [=](const Problem& problem) -> Expected<PreparedKernel> {
        if (std::string reason = codegen::Compiler::refusal(); !reason.empty())
            return Unexpected{std::move(reason)};
        std::string text = problem.attributes.text();
        for (const auto& types : {problem.inputs, problem.outputs})
            for (const Type& type : types) text += " " + type.text();
        auto entry = known->find(text);
        if (entry == known->end()) entry = known->emplace(std::move(text), resolve(problem)).first;
        if (!entry->second) return Unexpected{entry->second.reason()};
        return prepare(problem, *entry->second);
    };
    return {.name = "compiled " + unit, .arithmetic = {.unit = unit}, .prepare = ready};
}

}  // namespace mantissa
