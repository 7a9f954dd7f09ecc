#include "mantissa/device/cpu/kernels/attention_score.h"

#include <fmt/format.h>

#include <array>

#include "mantissa/base/error.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/rows/partition.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

void store_gradient(const float* from, std::int64_t count, DType dtype, std::byte* to, ThreadPool& pool) {
    for_each_range(pool, count, block_elements, [&](Range range, std::int64_t) {
        for (std::int64_t i = range.first; i < range.last; ++i)
            store_from_f64(to, dtype, i, static_cast<double>(from[i]));
    });
}

}  // namespace

void BoundScore::add_operands(const ScoreProblem& problem) {
    const AttentionScore score = attention_score(problem.attributes);
    const std::vector<bool> asked = asked_score_gradients(problem.attributes, score.operands.size());
    for (std::size_t i = 0; i < score.operands.size(); ++i) {
        const Type& type = problem.operands[i];
        const ScorePlace place = place_of_score_operand(score.operands[i], type.shape, problem.extents);
        const PairStrides strides{place.sequence, place.head, place.query, place.key};
        operands_.push_back({.dtype = type.dtype, .strides = strides});
        first_.push_back(place.first);
        if (!asked[i] || problem.pass == ScorePass::forward) continue;
        gradients_.push_back({i, type.shape.elements(), type.dtype});
        gradient_sizes_.push_back({.count = type.shape.elements(), .first = place.first, .strides = strides});
        if (type.dtype != DType::f32) gradient_bytes_ += in_lines(type.shape.elements() * float_bytes);
    }
}

void BoundScore::find_blocks(const ScoreProblem& problem, ThreadPool& pool) {
    blocks_ = VisibleBlocks::of(problem.attributes.body("score").graph(), problem.size, operands_);
    if (!blocks_) return;
    if (!blocks_->by_positions()) {
        table_bytes_ = in_lines(blocks_->bytes());
        return;
    }
    fixed_.resize(blocks_->bytes());
    blocks_->fill({}, fixed_.data(), pool);
    if (blocks_->sees_everything(fixed_.data()))
        fixed_.clear();
    else
        fixed_table_ = blocks_->table(fixed_.data());
    blocks_.reset();
}

void BoundScore::add_functions(const codegen::ScoreForm& form, ScorePass pass, codegen::Compiler& compiler) {
    const bool forward = pass == ScorePass::forward;
    if (!form.is_score || !gradients_.empty()) plain_ = compiler.add(forward ? form.forward : form.backward);
    if (blocks_ || fixed_table_.blocks) {
        masked_ = compiler.add(forward ? form.forward_masked : form.backward_masked);
        mask_ = compiler.add(forward ? form.forward_mask : form.backward_mask);
    }
    if (!gradients_.empty()) sums_ = compiler.add(form.sums);
    sizes_ = {.slopes = !forward && !form.unit_slope && !form.is_score,
              .multiplies = form.multiplies,
              .operands = operands_.data(),
              .operand_count = static_cast<std::int64_t>(operands_.size()),
              .gradients = gradient_sizes_.data(),
              .gradient_count = static_cast<std::int64_t>(gradient_sizes_.size())};
    // Whether there are sums matters to the size of the workspace, not which function makes them.
    if (sums_) sizes_.sums = [](const codegen::ScoreBlock*) {};
}

Expected<std::shared_ptr<const BoundScore>> BoundScore::of(const ScoreProblem& problem,
                                                           codegen::Compiler& compiler, ThreadPool& pool) {
    if (!problem.attributes.has("score")) return std::shared_ptr<const BoundScore>{};
    if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) return Unexpected{reason};
    const auto bound = std::make_shared<BoundScore>();
    bound->pass_ = problem.pass;
    bound->add_operands(problem);
    if (bound->operands_.size() > static_cast<std::size_t>(max_score_operands))
        return Unexpected{fmt::format("its score has {} operands, kernels take {}", bound->operands_.size(),
                                      max_score_operands)};
    if (bound->gradients_.size() > static_cast<std::size_t>(max_score_gradients))
        return Unexpected{fmt::format("its score has {} operands with gradients, kernels make {}",
                                      bound->gradients_.size(), max_score_gradients)};
    codegen::ScoreRequest request{.body = problem.attributes.body("score").graph()};
    for (const ScoreOperand& operand : bound->operands_)
        request.operands.push_back({operand.strides.query, operand.strides.key});
    request.rounded = size_of(problem.size.dtype) == 2;
    request.gradients = asked_score_gradients(problem.attributes, bound->operands_.size());
    const Expected<codegen::ScoreForm> form = codegen::score_form(request);
    if (!form) return Unexpected{"its score: " + form.reason()};
    bound->find_blocks(problem, pool);
    bound->add_functions(*form, problem.pass, compiler);
    return std::shared_ptr<const BoundScore>(bound);
}

Score BoundScore::placed_functions() const {
    const auto function = [](const auto& kernel) -> codegen::ScoreFunction {
        if (!kernel) return nullptr;
        check(kernel->function != nullptr, "score functions are compiled before they are launched");
        return kernel->function;
    };
    Score score = sizes_;
    (pass_ == ScorePass::forward ? score.forward : score.backward) = function(plain_);
    (pass_ == ScorePass::forward ? score.forward_masked : score.backward_masked) = function(masked_);
    (pass_ == ScorePass::forward ? score.forward_mask : score.backward_mask) = function(mask_);
    score.sums = function(sums_);
    score.table = fixed_table_;
    return score;
}

void BoundScore::launch(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                        std::byte* workspace, ThreadPool& pool, FunctionRef<void(const Score&)> run) const {
    Score score = placed_functions();
    std::array<ScoreOperand, max_score_operands> operands;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
        operands[i] = operands_[i];
        operands[i].data = inputs[i] + first_[i] * static_cast<std::int64_t>(size_of(operands_[i].dtype));
    }
    score.operands = operands.data();
    if (blocks_) {
        Sees* const table = reinterpret_cast<Sees*>(workspace);
        blocks_->fill({operands.data(), operands_.size()}, table, pool);
        score.table = blocks_->table(table);
    }
    std::array<ScoreGradient, max_score_gradients> gradients;
    std::byte* free = workspace + table_bytes_;
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
        gradients[i] = gradient_sizes_[i];
        const bool in_place = gradients_[i].dtype == DType::f32;
        gradients[i].data = reinterpret_cast<float*>(in_place ? outputs[i] : free);
        if (!in_place) free += in_lines(gradients_[i].count * float_bytes);
    }
    score.gradients = gradients.data();
    run(score);
    for (std::size_t i = 0; i < gradients_.size(); ++i)
        if (gradients_[i].dtype != DType::f32)
            store_gradient(gradients[i].data, gradients_[i].count, gradients_[i].dtype, outputs[i], pool);
}

}  // namespace mantissa::on_cpu
