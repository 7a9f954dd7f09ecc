#include "mantissa/report/rounding_losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "mantissa/base/error.h"
#include "mantissa/formats/safetensors_write.h"
#include "mantissa/graph/graph.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/report/quantities.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

namespace {

/// A value in memory now.
ReferenceTensor value_of(const Execution& execution, Value value) {
    ReferenceTensor tensor{.type = execution.plan().graph().type(value), .values = {}};
    execution.read_in_pieces(value, [&](std::int64_t, std::span<const std::byte> bytes) {
        const auto append = [&](auto number, auto widened) {
            const auto* const numbers = reinterpret_cast<const decltype(number)*>(bytes.data());
            for (std::size_t i = 0; i < bytes.size() / sizeof(number); ++i)
                tensor.values.push_back(static_cast<double>(widened(numbers[i])));
        };
        if (tensor.type.dtype == DType::bf16)
            append(BF16{}, [](BF16 x) { return to_f32(x); });
        else if (tensor.type.dtype == DType::i64)
            append(std::int64_t{}, [](std::int64_t x) { return x; });
        else
            append(float{}, [](float x) { return x; });
        return true;
    });
    return tensor;
}

/// "h.3.mlp.c_fc dy, along 1": w for a state, dy for a result of the backward pass, x for others.
std::string name_of_rounded(const Graph& graph, const Node& node) {
    const Node& made = graph.node(node.inputs[0].node);
    const char* const role = made.op->name == "state"               ? "w"
                             : made.origin.stage == Stage::backward ? "dy"
                                                                    : "x";
    std::string name = fmt::format("{} {}", node.origin.scope, role);
    if (node.attributes.word("rule") != "tensor" && !node.attributes.has("square"))
        name += fmt::format(", axis {}", node.attributes.integer("axis"));
    return name;
}

/// The contents of a file of tensors.
class Recording {
  public:
    void add(const Execution& execution, const std::string& name, Value value) {
        const Type& type = execution.plan().graph().type(value);
        std::vector<std::byte>& bytes = bytes_.emplace_back();
        execution.read_in_pieces(value, [&](std::int64_t, std::span<const std::byte> piece) {
            bytes.insert(bytes.end(), piece.begin(), piece.end());
            return true;
        });
        views_.push_back({.name = name, .dtype = type.dtype, .shape = type.shape.extents(), .data = nullptr});
    }
    void describe(const std::string& name, const std::string& text) { metadata_[name] = text; }

    void write(const std::filesystem::path& path) {
        for (std::size_t i = 0; i < views_.size(); ++i) views_[i].data = bytes_[i].data();
        write_safetensors(path, views_, metadata_);
    }

  private:
    std::vector<std::vector<std::byte>> bytes_;
    std::vector<TensorView> views_;
    std::map<std::string, std::string> metadata_;
};

double part_of_all(std::int64_t part, std::int64_t all) {
    return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

std::string in_percent(double share) { return fmt::format("{:.2f} %", 100 * share); }

Grid worst_first(const std::vector<RoundedTensor>& tensors) {
    Grid grid{{"tensor", "numbers", "become zero", "saturate", "signal to noise"}};
    for (const RoundedTensor& tensor : tensors)
        grid.rows.push_back({tensor.name, std::to_string(tensor.losses.numbers), in_percent(tensor.flushed()),
                             in_percent(tensor.saturated()), fmt::format("{:.1f} dB", tensor.decibels())});
    return grid;
}

}  // namespace

double RoundedTensor::flushed() const { return part_of_all(losses.flushed, losses.numbers); }
double RoundedTensor::saturated() const { return part_of_all(losses.saturated, losses.numbers); }
double RoundedTensor::decibels() const { return 10 * std::log10(losses.signal / losses.noise); }

std::vector<std::string> passes_to_look_into(const Target& target, const Policy& policy) {
    std::vector<std::string> passes = runnable_passes(target, policy);
    std::erase(passes, "lay_out");
    return passes;
}

RoundingReport measure_rounding(Trainer& trainer, const Batch& batch, const std::filesystem::path& tensors) {
    Recording recording;
    const Policy& policy = trainer.plan().options().policy;
    RoundingReport report{
        .model = trainer.model().name, .policy = policy.name, .steps = trainer.steps_done()};
    trainer.look_into(batch, [&](Execution& execution) {
        const Graph& graph = execution.plan().graph();
        const auto look = [&](NodeId id) {
            const Node& node = graph.node(id);
            if (node.origin.stage == Stage::update) return false;
            if (node.op->name != "round_blocks") return true;
            std::vector<ReferenceTensor> operands;
            for (const Value& input : node.inputs) operands.push_back(value_of(execution, input));
            std::vector<const ReferenceTensor*> read;
            for (const ReferenceTensor& operand : operands) read.push_back(&operand);
            if (!tensors.empty()) {
                const std::string name = std::to_string(report.tensors.size());
                recording.add(execution, name + ".x", node.inputs[0]);
                recording.describe(
                    name, fmt::format("{} {}", name_of_rounded(graph, node), node.attributes.text()));
            }
            report.tensors.push_back({name_of_rounded(graph, node),
                                      node.origin.rule.substr(policy.name.size() + 2),
                                      reference::losses_of_rounding(node, read)});
            return true;
        };
        execution.run_while(look, [&](NodeId id) {
            const Node& node = graph.node(id);
            if (tensors.empty() || node.op->name != "round_blocks") return true;
            const std::string name = std::to_string(report.tensors.size() - 1);
            recording.add(execution, name + ".y", {id, 0});
            if (node.outputs.size() > 1) recording.add(execution, name + ".factor", {id, 1});
            return true;
        });
    });
    if (!tensors.empty()) recording.write(tensors);
    return report;
}

std::string rounding_table(const RoundingReport& report) {
    std::vector<RoundedTensor> tensors = report.tensors;
    std::ranges::stable_sort(tensors, {}, &RoundedTensor::decibels);
    reference::RoundingLosses all;
    for (const RoundedTensor& tensor : tensors) {
        all.numbers += tensor.losses.numbers;
        all.flushed += tensor.losses.flushed;
        all.saturated += tensor.losses.saturated;
    }
    const std::size_t shown = std::min<std::size_t>(tensors.size(), 20);
    std::string text = fmt::format(
        "{}, step {}, policy {}: {} tensors are rounded; of their numbers {} become zero and {} saturate\n\n",
        report.model, report.steps, report.policy, tensors.size(),
        in_percent(part_of_all(all.flushed, all.numbers)),
        in_percent(part_of_all(all.saturated, all.numbers)));
    if (shown < tensors.size())
        text += fmt::format("the {} that lose most (the report as JSON has all)\n", shown);
    tensors.resize(shown);
    return text + worst_first(tensors).text();
}

std::string rounding_json(const RoundingReport& report) {
    Table table{{"name", "format", "numbers", "flushed", "saturated", "signal_to_noise_db"}};
    for (const RoundedTensor& tensor : report.tensors)
        table.add(tensor.name, tensor.format, tensor.losses.numbers, tensor.flushed(), tensor.saturated(),
                  tensor.decibels());
    return json_of("numerics", {{"model", report.model},
                                {"policy", report.policy},
                                {"steps", report.steps},
                                {"losses", report.losses},
                                {"rounded", table}});
}

}  // namespace mantissa
