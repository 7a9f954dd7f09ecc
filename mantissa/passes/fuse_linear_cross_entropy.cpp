#include "mantissa/passes/fuse_linear_cross_entropy.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "mantissa/base/expected.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/ignored_targets.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/analysis/uses.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

/// Values: x [N, C], w [V, C], targets of N rows, the scalar seed, of losses by rows one of N rows. Nodes:
/// the maker and the readers of the logits.
struct LossForm {
    NodeId linear = -1, loss = -1;
    Value x = {}, w = {}, targets = {};
    Value seed = {};            ///< node -1: no gradients
    Value seed_of_lse = {};     ///< of losses by rows
    NodeId dx = -1, dw = -1;    ///< the products that gave them; no dw: the weights are frozen
    std::set<NodeId> replaced;  ///< nodes that nothing else reads
};

/// Each step tells whether the search goes on.
class LossRecognition {
  public:
    LossRecognition(const Graph& graph, const Uses& uses, NodeId loss) : graph_(graph), uses_(uses) {
        form_.loss = loss;
        logits_ = graph.node(loss).inputs[0];
        form_.targets = graph.node(loss).inputs[1];
    }

    Expected<LossForm> run() {
        if (require(!node(form_.loss).attributes.has("classes"), "the logits are padded already") &&
            follow_logits() && follow_gradient())
            return form_;
        return why_not_.none();
    }

  private:
    template <class... Args>
    bool require(bool holds, fmt::format_string<Args...> message, Args&&... args) {
        return holds || why_not_.refuse(fmt::format(message, std::forward<Args>(args)...));
    }

    const Node& node(NodeId id) const { return graph_.node(id); }
    bool by_rows() const { return gives_rows(node(form_.loss).attributes); }
    bool is(NodeId id, std::string_view op) const { return id >= 0 && node(id).op->name == op; }
    bool is_view_or_cast(NodeId id) const { return is(id, "cast") || is(id, "reshape"); }

    /// Rows of V numbers, in the format of the products' operands, or widened to the loss's.
    bool require_logits(Value value) {
        const Type& type = graph_.type(value);
        return require(type.shape.rank() > 0 && type.shape[-1] == classes_,
                       "the logits [{}, {}] are reshaped to {}", rows_, classes_, type.shape.text()) &&
               require(type.dtype == dtype_ || type.dtype == loss_dtype_, "{} logits are cast to {}",
                       name_of(dtype_), name_of(type.dtype));
    }

    std::string reader(NodeId id) const {
        return id < 0 ? "as a result" : fmt::format("by '{}'", node(id).op->name);
    }

    /// Follows the graph from the loss back to the product, over views and casts that nothing else reads.
    bool follow_logits() {
        std::vector<Value> passed{logits_};
        while (is_view_or_cast(passed.back().node)) passed.push_back(node(passed.back().node).inputs[0]);
        if (!take_linear(passed.back().node)) return false;
        for (std::size_t i = 0; i < passed.size(); ++i) {
            if (!require_logits(passed[i])) return false;
            form_.replaced.insert(passed[i].node);
            if (i > 0 && !require_one_reader(passed[i])) return false;
        }
        form_.replaced.insert(form_.loss);
        return true;
    }

    bool require_one_reader(Value value) {
        return std::ranges::all_of(uses_.of(value), [this](NodeId user) {
            return require(form_.replaced.contains(user), "the logits are used {} too", reader(user));
        });
    }

    bool take_linear(NodeId id) {
        if (!require(is(id, "matmul"), "the logits come from '{}', not from a product with weights",
                     node(id).op->name))
            return false;
        const Node& linear = node(id);
        form_.linear = id;
        form_.x = linear.inputs[0];
        form_.w = linear.inputs[1];
        const Type &x = graph_.type(form_.x), &w = graph_.type(form_.w);
        if (!require(linear.inputs.size() == 2, "a bias is added to the logits") ||
            !require(w.shape.rank() == 2, "there is a batch of weights, {}", w.text()) ||
            !require(linear.attributes.flag("transpose_b"), "the weights lie as [C, V] {}, not as [V, C]",
                     w.text()) ||
            !require(!linear.attributes.flag("transpose_a"), "x lies as [C, N] {}, not as [N, C]", x.text()))
            return false;
        rows_ = x.shape[0];
        classes_ = w.shape[0];
        dtype_ = x.dtype;
        loss_dtype_ = graph_.type({form_.loss, 0}).dtype;
        return require(linear.outputs[0].dtype == dtype_, "{} operands give {} logits", name_of(dtype_),
                       name_of(linear.outputs[0].dtype));
    }

    /// Follows the graph from the loss's gradient on, over views and casts, to the products that make dx and
    /// dw.
    bool follow_gradient() {
        NodeId gradient = -1;
        for (const Value& read : {logits_, Value{form_.loss, 1}})
            for (const NodeId user : uses_.of(read)) {
                if (user == form_.loss) continue;
                if (read != logits_ && by_rows() && !is(user, "cross_entropy_grad")) continue;
                if (!require(is(user, "cross_entropy_grad"), "{} used {} too",
                             read == logits_ ? "the logits are" : "the log-sum-exp is", reader(user)) ||
                    !require(gradient < 0 || gradient == user, "the loss is differentiated twice"))
                    return false;
                gradient = user;
            }
        if (gradient < 0) return true;
        const Node& grad = node(gradient);
        if (!require(grad.inputs[1] == logits_ && grad.inputs[2] == form_.targets &&
                         grad.inputs[3] == Value{form_.loss, 1},
                     "the gradient is of other logits or targets") ||
            !take_seed(form_.seed, grad.inputs[0]) ||
            (by_rows() && !take_seed(form_.seed_of_lse, grad.inputs[4])))
            return false;
        form_.replaced.insert(gradient);
        Value dlogits{gradient, 0};
        while (uses_.of(dlogits).size() == 1 && is_view_or_cast(uses_.of(dlogits)[0])) {
            dlogits = {uses_.of(dlogits)[0], 0};
            form_.replaced.insert(dlogits.node);
            if (!require_logits(dlogits)) return false;
        }
        return take_products(dlogits);
    }

    /// The operation stands where the loss stood: the factor of its gradients must not need a loss.
    bool take_seed(Value& taken, Value seed) {
        const Type& wanted = graph_.type({form_.loss, 0});
        if (!require(graph_.type(seed) == wanted, "its gradient is multiplied by {}, not by {}",
                     graph_.type(seed).text(), wanted.text()))
            return false;
        std::set<NodeId> above{seed.node};
        while (!above.empty()) {
            const NodeId id = *above.rbegin();
            if (id < form_.loss) break;
            if (!require(!is(id, "cross_entropy"), "its gradient is multiplied by what depends on a loss"))
                return false;
            above.erase(id);
            for (const Value& input : node(id).inputs) above.insert(input.node);
        }
        taken = seed;
        return true;
    }

    bool take_products(Value dlogits) {
        for (const NodeId user : uses_.of(dlogits)) {
            if (!require(is(user, "matmul"), "the gradient of the logits is used {}", reader(user)))
                return false;
            const Node& product = node(user);
            const bool ta = product.attributes.flag("transpose_a");
            const bool plain = product.inputs.size() == 2 && product.inputs[0] == dlogits &&
                               !product.attributes.flag("transpose_b") && has_same_multiply(product);
            if (plain && !ta && product.inputs[1] == form_.w && form_.dx < 0)
                form_.dx = user;
            else if (plain && ta && product.inputs[1] == form_.x && form_.dw < 0)
                form_.dw = user;
            else
                return why_not_.refuse("the gradient of the logits goes into another product");
        }
        if (!require(is_read(form_.dx), "the gradient of x is not asked for") ||
            !require(node(form_.dx).outputs[0] == graph_.type(form_.x), "the gradient of {} is written as {}",
                     graph_.type(form_.x).text(), node(form_.dx).outputs[0].text()))
            return false;
        form_.replaced.insert(form_.dx);
        if (form_.dw >= 0) form_.replaced.insert(form_.dw);
        if (!is_read(form_.dw)) form_.dw = -1;
        return true;
    }

    /// The gradient rule of a product records both gradients, wanted or not.
    bool is_read(NodeId product) const { return product >= 0 && !uses_.of({product, 0}).empty(); }

    bool has_same_multiply(const Node& product) const {
        const auto multiply = [](const Node& of) {
            return of.attributes.has("multiply") ? of.attributes.word("multiply") : std::string();
        };
        return multiply(product) == multiply(node(form_.linear));
    }

    const Graph& graph_;
    const Uses& uses_;
    FirstReason why_not_;
    LossForm form_;
    Value logits_;  // as the loss reads them
    std::int64_t rows_ = 0, classes_ = 0;
    DType dtype_ = DType::f32, loss_dtype_ = DType::f32;
};

class LossReplacement {
  public:
    LossReplacement(const Graph& source, Rewriter& rewriter, const LossForm& form)
        : source_(source), rewriter_(rewriter), form_(form) {}

    void run() {
        for (const Value seed : {form_.seed, form_.seed_of_lse})
            if (seed.node >= 0) bring_forward(seed.node);
        Graph& target = rewriter_.target();
        const Node& linear = source_.node(form_.linear);
        const OriginScope scope(target, linear.origin);
        const Tensor x = operand(form_.x), w = operand(form_.w);
        std::vector<Tensor> inputs{x, w, reshape(operand(form_.targets), {x.dim(0)})};
        const Node& loss = source_.node(form_.loss);
        const bool by_rows = gives_rows(loss.attributes);
        for (const Value seed : {form_.seed, form_.seed_of_lse})
            if (seed.node >= 0)
                inputs.push_back(by_rows ? reshape(operand(seed), {x.dim(0)}) : operand(seed));
        Attributes attributes;
        if (linear.attributes.has("multiply"))
            attributes = {{"multiply", linear.attributes.word("multiply")}};
        if (ignores_negative(loss.attributes)) attributes = attributes.with("ignore_negative", true);
        if (by_rows) attributes = attributes.with("rows", true);
        if (form_.seed.node >= 0 && form_.dw < 0) attributes = attributes.with("frozen", true);
        const std::vector<Tensor> y = call(target, "linear_cross_entropy", inputs, attributes);
        rewriter_.place({form_.loss, 0}, reshape(y[0], loss.outputs[0].shape).value());
        if (by_rows) rewriter_.place({form_.loss, 1}, reshape(y.back(), loss.outputs[1].shape).value());
        if (form_.seed.node < 0) return;
        rewriter_.place({form_.dx, 0}, y[1].value());
        if (form_.dw < 0) return;
        // FP32; in the shorter format where the product rounded it once, too.
        const DType dw = source_.node(form_.dw).outputs[0].dtype;
        rewriter_.place({form_.dw, 0}, cast(y[2], dw).value());
    }

  private:
    Tensor operand(Value value) { return {rewriter_.target(), rewriter_.map(value)}; }

    /// The seed is recorded after the loss, with the backward pass. Copies the seed with the nodes that it
    /// needs, and every state and input before it, whose order must stay.
    void bring_forward(NodeId seed) {
        std::set<NodeId> needed{seed};
        for (NodeId id = seed; id > form_.loss; --id) {
            const Node& node = source_.node(id);
            if (node.op->name == "state" || node.op->name == "input") needed.insert(id);
            if (!needed.contains(id)) continue;
            for (const Value& input : node.inputs) needed.insert(input.node);
        }
        for (const NodeId id : needed)
            if (!rewriter_.placed({id, 0})) rewriter_.copy(id);
    }

    const Graph& source_;
    Rewriter& rewriter_;
    const LossForm& form_;
};

}  // namespace

ChunkedLoss fuse_linear_cross_entropy(const Graph& graph, std::span<Value> kept) {
    const Uses uses(graph, kept);
    ChunkedLoss chunked;
    std::map<NodeId, LossForm> forms;  // by the node of the loss
    std::set<NodeId> replaced;
    for (NodeId id = 0; id < graph.end(); ++id) {
        if (graph.node(id).op->name != "cross_entropy") continue;
        if (const Expected<LossForm> form = LossRecognition(graph, uses, id).run()) {
            replaced.insert(form->replaced.begin(), form->replaced.end());
            forms.emplace(id, *form);
        } else {
            chunked.refused.push_back({"fuse_linear_cross_entropy", "cross_entropy",
                                       graph.node(id).origin.scope, form.reason(),
                                       graph.node(id).origin.line.text()});
        }
    }
    chunked.matched = static_cast<int>(forms.size());
    Rewriter rewriter(graph);
    for (NodeId id = 0; id < graph.end(); ++id) {
        const auto form = forms.find(id);
        if (form != forms.end())
            LossReplacement(graph, rewriter, form->second).run();
        else if (!replaced.contains(id) && !rewriter.placed({id, 0}))
            rewriter.copy(id);
    }
    for (Value& value : kept) value = rewriter.map(value);
    chunked.graph = rewriter.finish();
    return chunked;
}

}  // namespace mantissa
