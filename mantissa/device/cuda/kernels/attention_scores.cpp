#include "mantissa/device/cuda/kernels/attention_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

#include "mantissa/base/whole_units.h"
#include "mantissa/graph/attention_score.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0::on_cuda {

namespace {

using codegen::AttentionKernel;
using codegen::PairScore;
using By = PairScore::Gradient::By;

/// The dependence of a body's mask.
struct MaskReads {
    bool score = false, sequence = false, head = false;
};

MaskReads mask_reads(const Graph& body, const std::vector<PairScore::Operand>& operands) {
    MaskReads reads;
    const auto visible = std::ranges::find(body.results(), std::string("visible"), &Result::name);
    if (visible == body.results().end()) return reads;
    std::vector<bool> needed(body.size());
    needed[static_cast<std::size_t>(visible->value.node)] = true;
    for (std::size_t id = body.size(); id-- > 0;) {
        if (!needed[id]) continue;
        const Node& node = body.node(static_cast<NodeId>(id));
        for (const Value& input : node.inputs) needed[static_cast<std::size_t>(input.node)] = true;
        if (node.op->name == "random_uniform") reads.sequence = reads.head = true;
        if (node.op->name == "iota") {
            const std::int64_t axis = 4 - node.outputs[0].shape.rank() + node.attributes.integer("axis");
            reads.sequence = reads.sequence || axis == 0;
            reads.head = reads.head || axis == 1;
        }
        if (node.op->name != "input") continue;
        const auto input = static_cast<std::size_t>(
            std::ranges::find(body.inputs(), static_cast<NodeId>(id)) - body.inputs().begin());
        if (input == 0) {
            reads.score = true;
        } else {
            reads.sequence = reads.sequence || operands[input - 1].places.sequence != 0;
            reads.head = reads.head || operands[input - 1].places.head != 0;
        }
    }
    return reads;
}

/// Makes the score of one node.
class ScoreBinder {
  public:
    ScoreBinder(Context& context, const Problem& problem, std::size_t first, const AttentionKernel& kernel)
        : context_(context),
          problem_(problem),
          is_forward_(first == 0),
          kernel_(kernel),
          score_(attention_score(problem.attributes)),
          asked_(asked_score_gradients(problem.attributes, score_.operands.size())) {
        const std::size_t tensors = attention_layout(problem.attributes).operands.size();
        types_ = problem.inputs.subspan(first + tensors, score_.operands.size());
    }

    Expected<BoundScore> run() {
        add_operands();
        codegen::ScoreRequest request{.body = score_.body->graph(), .rounded = true};
        for (const PairScore::Operand& operand : made_.operands)
            request.operands.push_back({operand.places.query, operand.places.key});
        request.gradients = asked_;
        const Expected<codegen::ScoreForm> form = codegen::score_form(request);
        if (!form) return Unexpected{"its score: " + form.reason()};
        take_functions(*form);
        if (std::string reason = add_gradients(); !reason.empty()) return Unexpected{std::move(reason)};
        if (!made_.gradients.empty()) made_.sums = form->sums;
        bound_.score = std::make_shared<const PairScore>(std::move(made_));
        return std::move(bound_);
    }

  private:
    void add_operands() {
        const AttentionExtents e{kernel_.sequences, kernel_.heads,     kernel_.queries,
                                 kernel_.keys,      kernel_.head_size, kernel_.heads / kernel_.group};
        for (std::size_t i = 0; i < score_.operands.size(); ++i) {
            const ScorePlace place = place_of_score_operand(score_.operands[i], types_[i].shape, e);
            made_.operands.push_back(
                {types_[i].dtype, {place.first, place.sequence, place.head, place.query, place.key}});
        }
    }

    void take_functions(const codegen::ScoreForm& form) {
        const MaskReads reads = mask_reads(score_.body->graph(), made_.operands);
        if (!form.is_score) made_.remade = is_forward_ ? form.forward : form.backward;
        if (!form.hides) return;
        if (reads.score) {  // no tile is known before its scores
            made_.remade = is_forward_ ? form.forward_masked : form.backward_masked;
            return;
        }
        made_.mask = is_forward_ ? form.forward_mask : form.backward_mask;
        made_.mask_by_sequence = reads.sequence;
        made_.mask_by_head = reads.head;
    }

    /// Or why not.
    std::string add_gradients() {
        for (std::size_t i = 0; i < asked_.size() && !is_forward_; ++i) {
            if (!asked_[i]) continue;
            const codegen::PairPlaces& at = made_.operands[i].places;
            const bool by_queries = at.query != 0, by_keys = at.key != 0;
            if (by_queries && at.query == -at.key)
                return fmt::format(
                    "no kernel adds up pairs of equal distance, as the gradient of operand {} of its score",
                    i);
            const bool of_one_pair =
                (at.sequence != 0 || kernel_.sequences == 1) && (at.head != 0 || kernel_.heads == 1);
            if (by_queries && by_keys && !of_one_pair)
                return fmt::format(
                    "no kernel adds up pairs of several sequences or heads, as the gradient of operand {} of "
                    "its score",
                    i);
            if (by_keys && !by_queries && at.head != 0 && kernel_.group > 1)
                return fmt::format(
                    "no kernel keeps heads of a group apart, as the gradient of operand {} of its score, by "
                    "keys",
                    i);
            const By by = by_queries && by_keys ? By::each_pair : by_keys ? By::key_rows : By::query_rows;
            made_.gradients.push_back({by, i});
            ScoreGradients::Gradient gradient{.bytes = types_[i].bytes()};
            if (by != By::each_pair) gradient.sums = row_sums(i, by);
            bound_.gradients.add(std::move(gradient));
        }
        return "";
    }

    ScoreGradients::RowSums row_sums(std::size_t operand, By by) {
        const bool of_queries = by == By::query_rows;
        const std::int64_t heads = of_queries ? kernel_.heads : kernel_.heads / kernel_.group;
        const std::int64_t positions = of_queries ? kernel_.queries : kernel_.keys;
        codegen::ReductionKernel sum;
        sum.to = types_[operand].dtype;
        const std::string letters = of_queries ? "bht" : "bhs";
        const std::int64_t extents[] = {kernel_.sequences, heads, positions};
        const std::int64_t strides[] = {heads * positions, positions, 1};
        for (const char letter : score_.operands[operand])
            if (const auto at = letters.find(letter); at != std::string::npos)
                sum.kept.push_back({extents[at], strides[at]});
        std::int64_t results = 1, terms = 1;
        for (std::size_t at = 0; at < letters.size(); ++at) {
            const bool is_kept = score_.operands[operand].find(letters[at]) != std::string::npos;
            (is_kept ? results : terms) *= extents[at];
            if (!is_kept) sum.reduced.push_back({extents[at], strides[at]});
        }
        // Threads of one result, where there are terms for them: neighbours read neighbours.
        if (terms >= codegen::grid_threads) sum.threads = codegen::grid_threads;
        sum.terms_of_chunk = terms;
        ScoreGradients::RowSums made;
        made.workspace = results * terms * static_cast<std::int64_t>(sizeof(float));
        codegen::GridKernel named{.name = "score_gradient", .code = sum};
        made.blocks = codegen::blocks_of(named);
        made.kernel = context_.modules.add(std::move(named));
        return made;
    }

    Context& context_;
    const Problem& problem_;
    bool is_forward_;
    const AttentionKernel& kernel_;
    AttentionScore score_;
    std::vector<bool> asked_;
    std::span<const Type> types_;  ///< of the operands
    PairScore made_;
    BoundScore bound_;
};

constexpr std::int64_t sums_bytes = 256;  // pieces of workspace begin at multiples

}  // namespace

std::int64_t ScoreGradients::workspace_before(std::size_t gradient) const {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < gradient; ++i)
        if (all_[i].sums) bytes += align_up(all_[i].sums->workspace, sums_bytes);
    return bytes;
}

std::int64_t ScoreGradients::workspace() const { return workspace_before(all_.size()); }

std::int64_t ScoreGradients::launches() const { return static_cast<std::int64_t>(all_.size()); }

std::vector<std::uint64_t> ScoreGradients::places(const std::vector<std::size_t>& which,
                                                  const Operands& operands, std::size_t first_output,
                                                  std::int64_t first) const {
    std::vector<std::uint64_t> places;
    for (const std::size_t i : which)
        places.push_back(all_[i].sums ? address_of(operands.workspace + first + workspace_before(i))
                                      : address_of(operands.outputs[first_output + i]));
    return places;
}

void ScoreGradients::begin(const Context& context, const Operands& operands, std::size_t first_output) const {
    for (std::size_t i = 0; i < all_.size(); ++i)
        if (!all_[i].sums)
            queue_zeros(context, operands.outputs[first_output + i], static_cast<std::size_t>(all_[i].bytes));
}

void ScoreGradients::finish(const Context& context, const Operands& operands, std::size_t first_output,
                            std::int64_t first) const {
    for (std::size_t i = 0; i < all_.size(); ++i)
        if (const auto& sums = all_[i].sums)
            launch(context, *sums->kernel, sums->blocks,
                   {address_of(operands.workspace + first + workspace_before(i)),
                    address_of(operands.outputs[first_output + i])});
}

Expected<BoundScore> bound_score(Context& context, const Problem& problem, std::size_t first,
                                 const AttentionKernel& kernel) {
    if (!problem.attributes.has("score")) return BoundScore{};
    return ScoreBinder(context, problem, first, kernel).run();
}

}  // namespace mantissa::on_cuda
