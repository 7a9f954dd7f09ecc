#include "mantissa/passes/contract_products.h"

#include <map>
#include <optional>
#include <set>

#include "mantissa/graph/tensor.h"
#include "mantissa/passes/analysis/uses.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

/// a b + addend; without b it is a + a + addend.
struct Contracted {
    NodeId absorbed = -1;  ///< the node of a b, or of addend + a
    Value a;
    std::optional<Value> b;
    Value addend;
};

class Contraction {
  public:
    explicit Contraction(const Graph& body) : body_(body), uses_(body), rewriter_(body) {}

    Graph run() {
        for (NodeId id = 0; id < body_.end(); ++id)
            if (const auto found = contracted(id)) {
                absorbed_.insert(found->absorbed);
                sums_.emplace(id, *found);
            }
        for (NodeId id = 0; id < body_.end(); ++id) place(id);
        return rewriter_.finish();
    }

  private:
    static bool is_sum(const Node& node) {
        return node.op->name == "add" && node.outputs[0].dtype == DType::f32;
    }

    std::optional<Contracted> contracted(NodeId id) const {
        const Node& sum = body_.node(id);
        if (!is_sum(sum) || sum.inputs[0] == sum.inputs[1]) return std::nullopt;
        for (const bool twice : {true, false})
            for (const std::size_t side : {0u, 1u}) {
                const Value term = sum.inputs[side], other = sum.inputs[1 - side];
                if (uses_.of(term.node).size() != 1 || sums_.contains(term.node)) continue;
                const Node& made = body_.node(term.node);
                if (!twice && made.op->name == "mul")
                    return Contracted{term.node, made.inputs[0], made.inputs[1], other};
                if (!twice || !is_sum(made) || made.inputs[0] == made.inputs[1]) continue;
                for (const std::size_t like : {0u, 1u})
                    if (made.inputs[like] == other)
                        return Contracted{term.node, other, std::nullopt, made.inputs[1 - like]};
            }
        return std::nullopt;
    }

    void place(NodeId id) {
        const auto sum = sums_.find(id);
        if (sum == sums_.end()) {
            if (!absorbed_.contains(id)) rewriter_.copy(id);
            return;
        }
        const auto& [absorbed, a, b, addend] = sum->second;
        Graph& target = rewriter_.target();
        const Value factor = b ? rewriter_.map(*b) : constant(target, 2, DType::f32).value();
        rewriter_.place({id, 0}, {target.add("fma", {rewriter_.map(a), factor, rewriter_.map(addend)}), 0});
    }

    const Graph& body_;
    Uses uses_;
    Rewriter rewriter_;
    std::map<NodeId, Contracted> sums_;
    std::set<NodeId> absorbed_;
};

}  // namespace

Graph contract_products(const Graph& body) { return Contraction(body).run(); }

}  // namespace mantissa
