#include "mantissa/passes/emulate.h"

#include <fmt/format.h>

#include <map>

#include "mantissa/base/error.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

class Emulation {
  public:
    Emulation(const Graph& source, std::string_view format)
        : source_(source), format_(format), rewriter_(source) {}

    Graph run() {
        for (NodeId i = 0; i < source_.end(); ++i) visit(i);
        return rewriter_.finish();
    }

  private:
    void visit(NodeId id) {
        const Node& node = source_.node(id);
        if (!multiplies_f32(node) || node.origin.precision) return rewriter_.copy(id);
        if (node.op->fuser != FuserClass::contraction)
            throw UserError(fmt::format(
                "{} multiplies inside of one operation, where nothing can be rounded to emulate {}; "
                "leave the pass out that makes it",
                node.op->name, format_));
        std::vector<Value> operands = rewriter_.map(node.inputs);
        Origin origin = node.origin;
        origin.rule = fmt::format("emulate {}: {}", format_, node.op->name);
        const OriginScope scope(rewriter_.target(), std::move(origin));
        // A third operand is a bias, which is added.
        for (std::size_t i = 0; i < 2; ++i) operands[i] = rounded(operands[i]);
        const NodeId added = rewriter_.target().add(node.op->name, std::move(operands), node.attributes);
        rewriter_.place({id, 0}, {added, 0});
    }

    /// Contractions, and composites that autocast treats as contractions.
    bool multiplies_f32(const Node& node) const {
        const bool multiplies =
            node.op->fuser == FuserClass::contraction || node.op->autocast == AutocastClass::lower;
        return multiplies && !node.inputs.empty() && source_.type(node.inputs[0]).dtype == DType::f32;
    }

    /// A rounding made once serves all readers.
    Value rounded(Value operand) {
        const auto [entry, is_new] = rounded_.try_emplace(operand);
        if (is_new)
            entry->second = {
                rewriter_.target().add("round_to", {operand}, {{"format", std::string(format_)}}), 0};
        return entry->second;
    }

    const Graph& source_;
    std::string_view format_;
    Rewriter rewriter_;
    std::map<Value, Value> rounded_;
};

}  // namespace

Graph emulate(const Graph& graph, std::string_view format) { return Emulation(graph, format).run(); }

}  // namespace mantissa
