// Attention and its gradient on the matrix units: kernels of our own, one forward and two backward, and the
// kernels beside them for masks and gradients of a score's operands.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cuda/kernels/kernels.h"
#include "mantissa/graph/attention_layout.h"
#include "mantissa/graph/attention_score.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0::on_cuda {

namespace {

/// Gradients of operands, in the order in which they are asked for, as in `PairScore`. Sums by rows are
/// summed further over the axes that the operand does not have.
class ScoreGradients {
  public:
    /// Adds up FP32 numbers [B, heads, positions] over the axes that the operand does not have.
    struct RowSums {
        std::shared_ptr<const GpuKernel> kernel;
        std::int64_t blocks = 0;
        std::int64_t workspace = 0;  ///< bytes
    };
    struct Gradient {
        std::optional<RowSums> sums = {};  ///< none: elements are stored pair by pair, over zeros
        std::int64_t bytes = 0;            ///< of the gradient
    };

    void add(Gradient gradient) { all_.push_back(std::move(gradient)); }

    std::int64_t workspace() const;
    std::int64_t launches() const;
    /// Where the kernels leave these gradients. `first_output`: among the operation's; `first`: of the
    /// workspace.
    std::vector<std::uint64_t> places(const std::vector<std::size_t>& which, const Operands& operands,
                                      std::size_t first_output, std::int64_t first) const;
    void begin(const Context& context, const Operands& operands, std::size_t first_output) const;
    void finish(const Context& context, const Operands& operands, std::size_t first_output,
                std::int64_t first) const;

  private:
    std::int64_t workspace_before(std::size_t gradient) const;

    std::vector<Gradient> all_;
};

struct BoundScore {
    std::shared_ptr<const codegen::PairScore> score = {};  ///< null: plain
    ScoreGradients gradients = {};
};

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

/// The score of a node whose tensors of queries, keys and values stand from operand `first` on: 0 forward, 1
/// backward. Or why there is no function for it.
Expected<BoundScore> bound_score(Context& context, const Problem& problem, std::size_t first,
                                 const AttentionKernel& kernel) {
    if (!problem.attributes.has("score")) return BoundScore{};
    return ScoreBinder(context, problem, first, kernel).run();
}

using codegen::AttentionKernel;

/// The attention of the graph: the operands that hold q, k and v, and the kernels' common part.
struct DescribedAttention {
    AttentionKernel kernel;
    std::size_t tensors = 0;          ///< operands that hold q, k and v
    std::size_t q = 0, k = 0, v = 0;  ///< among them

    /// The tensors of q, k and v stand from operand `first` on.
    DescribedAttention(const Problem& problem, std::size_t first) {
        const AttentionLayout layout = attention_layout(problem.attributes);
        tensors = layout.operands.size();
        const auto operands = problem.inputs.subspan(first, tensors);
        const AttentionExtents e = attention_extents(layout, operands);
        kernel.dtype = operands[0].dtype;
        kernel.sequences = e.sequences;
        kernel.heads = e.heads;
        kernel.queries = e.queries;
        kernel.keys = e.keys;
        kernel.head_size = e.head_size;
        kernel.group = e.key_heads == 0 ? 1 : e.heads / e.key_heads;
        kernel.causal = problem.attributes.flag("causal");
        kernel.scale = problem.attributes.number("scale");
        kernel.askew = problem.askew;
        kernel.lse_gradient =
            problem.attributes.has("lse_gradient") && problem.attributes.flag("lse_gradient");
        const auto take = [&](char name, std::size_t& tensor, codegen::HeadPlaces& places) {
            const AttentionPart part = part_of(layout, name);
            tensor = part.tensor;
            places = places_of(strides_of(layout.operands[tensor].axes, operands[tensor].shape, part.index));
        };
        take('q', q, kernel.q);
        take('k', k, kernel.k);
        take('v', v, kernel.v);
        const Shape heads{e.sequences, e.heads, e.queries, e.head_size};
        kernel.o = places_of(strides_of(layout.result, stored_shape(layout.result, heads)));
    }

  private:
    static codegen::HeadPlaces places_of(const AttentionStrides& strides) {
        return {strides.start, strides.sequence, strides.head, strides.position};
    }
};

/// Workspace is handed out in pieces, each at a multiple of this.
constexpr std::int64_t piece_bytes = 256;

/// A kernel and how it is launched.
struct BoundAttention {
    std::shared_ptr<const GpuKernel> kernel, seen_tiles;  ///< seen_tiles: null where nothing is masked
    std::int64_t blocks = 0, seen_blocks = 0, table_bytes = 0;
    int threads = 0;
    bool moves_whole_rows = false;

    BoundAttention(Context& context, AttentionKernel made, AttentionKernel::Makes makes, const char* name) {
        made.makes = makes;
        made.lse_gradient = made.lse_gradient && makes == AttentionKernel::Makes::query_gradient;
        moves_whole_rows = codegen::moves_whole_rows(made);
        codegen::GridKernel named{.name = fmt::format("{}_{}", name, name_of(made.dtype)), .code = made};
        blocks = codegen::blocks_of(named);
        threads = codegen::block_threads(named);
        kernel = context.modules.add(std::move(named));
        if (!made.score || !made.score->mask) return;
        const codegen::SeenTilesKernel seen{made};
        table_bytes = align_up(seen.bytes(), piece_bytes);
        codegen::GridKernel of_tiles{.name = "seen_tiles", .code = seen};
        seen_blocks = codegen::blocks_of(of_tiles);
        seen_tiles = context.modules.add(std::move(of_tiles));
    }

    std::int64_t launches() const { return seen_tiles ? 2 : 1; }

    /// `operands`: of the score. `table`: where its seen tiles may be kept. `further`: parameters behind
    /// them.
    void queue(const Context& context, std::vector<std::uint64_t> parameters,
               std::span<const std::uint64_t> operands, std::uint64_t table,
               std::span<const std::uint64_t> further) const {
        constexpr std::uint64_t at_a_time = 16;
        for (const std::uint64_t address : parameters)
            check(!moves_whole_rows || address % at_a_time == 0, "tensors begin at multiples of 16 bytes");
        if (seen_tiles) {
            std::vector<std::uint64_t> of_tiles(operands.begin(), operands.end());
            of_tiles.push_back(table);
            launch(context, *seen_tiles, seen_blocks, std::move(of_tiles));
            parameters.push_back(table);
        }
        parameters.insert(parameters.end(), operands.begin(), operands.end());
        parameters.insert(parameters.end(), further.begin(), further.end());
        launch(context, *kernel, blocks, std::move(parameters), threads);
    }
};

std::vector<std::uint64_t> score_addresses(const AttentionKernel& kernel, const Operands& operands,
                                           std::size_t first) {
    std::vector<std::uint64_t> addresses;
    for (std::size_t i = 0; kernel.score && i < kernel.score->operands.size(); ++i)
        addresses.push_back(address_of(operands.inputs[first + i]));
    return addresses;
}

PreparedKernel forward_kernel(Context& context, const DescribedAttention& of) {
    const BoundAttention made(context, of.kernel, AttentionKernel::Makes::output, "attention");
    const auto queue = [&context, of, made](const Operands& operands) {
        const auto input = [&](std::size_t i) { return address_of(operands.inputs[i]); };
        made.queue(context,
                   {input(of.q), input(of.k), input(of.v), address_of(operands.outputs[0]),
                    address_of(operands.outputs[1])},
                   score_addresses(of.kernel, operands, of.tensors), address_of(operands.workspace), {});
    };
    return {.launch = queue, .workspace = made.table_bytes, .launches = made.launches()};
}

/// do, the tensors of q, k and v, the operands of the score, then o and the log-sum-exp, and the
/// log-sum-exp's gradient where there is one.
class BoundGradient {
  public:
    BoundGradient(Context& context, const DescribedAttention& of, const ScoreGradients& gradients)
        : context_(context),
          of_(of),
          gradients_(gradients),
          queries_(context, of.kernel, AttentionKernel::Makes::query_gradient, "attention_query_gradient"),
          keys_(context, of.kernel, AttentionKernel::Makes::key_gradients, "attention_key_gradients") {}

    std::int64_t statistics_bytes() const {
        return 2 * of_.kernel.sequences * of_.kernel.heads * of_.kernel.queries *
               static_cast<std::int64_t>(sizeof(float));
    }
    std::int64_t workspace() const { return first_sum() + gradients_.workspace(); }
    std::int64_t launches() const { return queries_.launches() + keys_.launches() + gradients_.launches(); }

    void queue(const Operands& operands) const {
        const auto input = [&](std::size_t i) { return address_of(operands.inputs[i]); };
        const auto output = [&](std::size_t i) { return address_of(operands.outputs[i]); };
        const std::uint64_t d_o = input(0), q = input(1 + of_.q), k = input(1 + of_.k), v = input(1 + of_.v),
                            rows = address_of(operands.workspace), table = rows + rows_bytes();
        const std::vector<std::uint64_t> of_score = score_addresses(of_.kernel, operands, 1 + of_.tensors);
        const std::size_t o = 1 + of_.tensors + of_score.size();
        const auto by = [&](AttentionKernel::Makes makes) {
            AttentionKernel kernel = of_.kernel;
            kernel.makes = makes;
            return gradients_.places(codegen::score_gradients_of(kernel), operands, of_.tensors, first_sum());
        };
        std::vector<std::uint64_t> further = by(AttentionKernel::Makes::query_gradient);
        if (of_.kernel.lse_gradient) further.push_back(input(o + 2));
        gradients_.begin(context_, operands, of_.tensors);
        queries_.queue(context_, {d_o, q, k, v, input(o), input(o + 1), output(of_.q), rows}, of_score, table,
                       further);
        keys_.queue(context_, {d_o, q, k, v, rows, output(of_.k), output(of_.v)}, of_score, table,
                    by(AttentionKernel::Makes::key_gradients));
        gradients_.finish(context_, operands, of_.tensors, first_sum());
    }

  private:
    std::int64_t rows_bytes() const { return align_up(statistics_bytes(), piece_bytes); }
    std::int64_t first_sum() const {
        return rows_bytes() + std::max(queries_.table_bytes, keys_.table_bytes);
    }

    Context& context_;
    DescribedAttention of_;
    ScoreGradients gradients_;
    BoundAttention queries_, keys_;
};

PreparedKernel gradient_kernel(Context& context, const DescribedAttention& of,
                               const ScoreGradients& gradients, const Problem& problem) {
    const BoundGradient made(context, of, gradients);
    // Seven products instead of five, and exponentials twice; do, q, k and v are read twice.
    const auto [flops, bytes] = problem.op.cost(problem.inputs, problem.outputs, problem.attributes);
    const std::int64_t D = of.kernel.head_size;
    std::int64_t more = 2 * made.workspace() + problem.inputs[0].bytes();
    for (const Type& type : problem.inputs.subspan(1, of.tensors)) more += type.bytes();
    return {.launch = [made](const Operands& operands) { made.queue(operands); },
            .workspace = made.workspace(),
            .launches = made.launches(),
            .cost = Cost{flops / (10 * D + 14) * (14 * D + 28), bytes + more}};
}

}  // namespace

void add_attention_kernels(KernelTable& table, Context& context) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
        const std::string name =
            fmt::format("attention {0}*{0}+f32 {1}", name_of(dtype), context.matrix_unit);
        for (const std::size_t first : {0u, 1u}) {  // where the tensors of queries, keys and values stand
            const auto prepare = [&context, first,
                                  dtype](const Problem& problem) -> Expected<PreparedKernel> {
                const Type& one = problem.inputs[first];
                if (one.dtype != dtype)
                    return Unexpected{
                        fmt::format("it is written for {}, got {}", name_of(dtype), one.text())};
                DescribedAttention described(problem, first);
                const auto score = bound_score(context, problem, first, described.kernel);
                if (!score) return Unexpected{score.reason()};
                described.kernel.score = score->score;
                described.kernel.by_warpgroups = context.warpgroup_attention;
                if (std::string reason = codegen::refuse_attention(described.kernel); !reason.empty())
                    return Unexpected{std::move(reason)};
                return first == 0 ? forward_kernel(context, described)
                                  : gradient_kernel(context, described, score->gradients, problem);
            };
            table[first == 0 ? "attention" : "attention_grad"].push_back(
                {.name = name,
                 .arithmetic = {.multiply = std::string(name_of(dtype)), .unit = context.matrix_unit},
                 .prepare = prepare});
        }
    }
}

}  // namespace mantissa::on_cuda
