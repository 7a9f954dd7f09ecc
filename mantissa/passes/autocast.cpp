#include "mantissa/passes/autocast.h"

#include <fmt/format.h>

#include <map>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

/// Formats that a policy may change: floating-point ones, FP64 apart.
bool is_castable(DType dtype) { return is_floating(dtype) && dtype != DType::f64; }

/// The format that holds every number of both; of BF16 and FP16 neither holds the other.
DType wider_of(DType a, DType b) {
    if (a == b) return a;
    return DType::f32;
}

class Autocast {
  public:
    Autocast(const Graph& source, const Policy& policy)
        : source_(source), policy_(policy), rewriter_(source, Rewriter::Types::may_change) {}

    Graph run(Value& loss) {
        for (NodeId i = 0; i < source_.end(); ++i) visit(i);
        loss = rewriter_.map(loss);
        return rewriter_.finish();
    }

  private:
    Graph& target() { return rewriter_.target(); }

    void visit(NodeId id) {
        const Node& node = source_.node(id);
        if (node.inputs.empty()) return rewriter_.copy(id);
        std::vector<Value> operands = rewriter_.map(node.inputs);
        Attributes attributes = node.attributes;
        const Decision decision = decide(node, operands);
        Origin origin = node.origin;
        if (!decision.rule.empty()) origin.rule = decision.rule;
        const OriginScope scope(target(), std::move(origin));
        // Operands that an operation does not lower have the types that it was given them in.
        const bool lowers_some = node.op->autocast == AutocastClass::lower && node.op->lowered;
        const std::size_t lowered = lowers_some ? node.op->lowered(attributes) : operands.size();
        for (std::size_t i = 0; i < operands.size(); ++i) {
            if (i >= lowered)
                operands[i] = as(operands[i], source_.type(node.inputs[i]).dtype, false);
            else if (decision.dtype)
                operands[i] = as(operands[i], *decision.dtype, decision.numbers_stay);
        }
        if (!node.origin.precision && is_tf32(node, operands))
            attributes = attributes.with("multiply", policy_.multiply);
        rewriter_.place(id, target().add(node.op->name, std::move(operands), std::move(attributes)));
    }

    /// The format of an operation's operands, and why. No format: as they are.
    struct Decision {
        std::optional<DType> dtype = {};
        std::string rule = {};
        bool numbers_stay = false;  ///< scalars keep their format, and widen nothing
    };

    Decision decide(const Node& node, const std::vector<Value>& operands) {
        bool any = false;
        for (const Value& operand : operands) {
            const DType dtype = target().type(operand).dtype;
            if (dtype == DType::f64) return {};
            any = any || is_castable(dtype);
        }
        if (!any || node.op->name == "cast") return {};
        if (const auto forced = node.origin.precision)
            return {.dtype = forced,
                    .rule = fmt::format("asked for: {}", name_of(*forced)),
                    .numbers_stay = true};
        switch (node.op->autocast) {
            case AutocastClass::lower:
                if (!policy_.low)
                    return {.rule = policy_.multiply.empty() ? "" : list(policy_.multiply, node)};
                return {.dtype = policy_.low, .rule = list(name_of(*policy_.low), node)};
            case AutocastClass::fp32:
                return {.dtype = DType::f32, .rule = list("f32", node)};
            case AutocastClass::widest:
                return promote(node, operands);
            case AutocastClass::same:
                break;
        }
        return {};
    }

    static std::string list(std::string_view format, const Node& node) {
        return fmt::format("{} list: {}", format, node.op->name);
    }

    /// Operands of mixed formats are cast to the widest; scalars are numbers, and count only among
    /// themselves.
    Decision promote(const Node& node, const std::vector<Value>& operands) {
        std::optional<DType> widest;
        bool mixed = false;
        for (const Value& operand : operands) {
            const Type& type = target().type(operand);
            if (!is_castable(type.dtype) || type.shape.rank() == 0) continue;
            mixed = mixed || (widest && *widest != type.dtype);
            widest = widest ? wider_of(*widest, type.dtype) : type.dtype;
        }
        if (!mixed) return {};
        return {.dtype = widest, .rule = fmt::format("promotion: {}", node.op->name), .numbers_stay = true};
    }

    /// The operand in a format; a cast made once serves all readers.
    Value as(Value operand, DType dtype, bool numbers_stay) {
        const Type& type = target().type(operand);
        if (!is_castable(type.dtype) || type.dtype == dtype) return operand;
        if (numbers_stay && type.shape.rank() == 0) return operand;
        // A value that is stored in the format, and was widened for its readers, is taken as it is stored.
        if (const Node& made = target().node(operand.node); made.op->name == "cast" && dtype != DType::f32)
            if (target().type(made.inputs[0]).dtype == dtype) return made.inputs[0];
        const auto [entry, is_new] = casts_.try_emplace({operand, dtype});
        if (is_new) entry->second = {target().add("cast", {operand}, {{"dtype", dtype}}), 0};
        return entry->second;
    }

    bool is_tf32(const Node& node, const std::vector<Value>& operands) {
        return !policy_.multiply.empty() && node.op->autocast == AutocastClass::lower &&
               target().type(operands[0]).dtype == DType::f32;
    }

    const Graph& source_;
    const Policy& policy_;
    Rewriter rewriter_;
    std::map<std::pair<Value, DType>, Value> casts_;
};

}  // namespace

Graph autocast(const Graph& graph, const Policy& policy, Value& loss) {
    return Autocast(graph, policy).run(loss);
}

}  // namespace mantissa
