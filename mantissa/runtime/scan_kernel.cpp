#include "mantissa/runtime/scan_kernel.h"

#include <algorithm>
#include <map>
#include <memory>

#include "mantissa/base/error.h"
#include "mantissa/graph/scan.h"
#include "mantissa/runtime/constant_bytes.h"

namespace mantissa::inline v0 {

namespace {

/// Where a value of the body lies, as a function of the step.
struct Where {
    enum class Base : std::uint8_t {
        nothing,  ///< it has no bytes
        operand,  ///< of the scan
        output,   ///< of the scan
        workspace,
        constants,
        before,  ///< the state as a step finds it
        after    ///< the state as a step leaves it
    };
    Base base = Base::nothing;
    std::size_t number = 0;  ///< of the operand, output or state
    std::int64_t offset = 0;
    std::int64_t of_step = 0;  ///< bytes from one index of time to the next
};

/// A launch of one step.
struct BodyLaunch {
    const Launch* launch = nullptr;
    std::vector<Where> inputs, outputs;
    std::int64_t workspace = 0;  ///< in the scan's
    std::int64_t kept = 0;       ///< there, too
};

/// Inputs that the body of a loop reads whole.
std::vector<NodeId> whole_inputs(const Graph& body, const ScanForm& form) {
    const auto first = body.inputs().begin() + static_cast<std::ptrdiff_t>(form.states + form.sequences);
    return {first, body.inputs().end()};
}

/// Whether any value of a step begins between multiples of 16 bytes, since steps lie one behind the other.
bool lies_askew(const Graph& body, const ScanForm& form) {
    const auto is_odd = [&](Value value) { return body.type(value).bytes() % 16 != 0; };
    const auto inputs = std::span(body.inputs()).first(form.states + form.sequences);
    return std::ranges::any_of(inputs,
                               [&](NodeId id) {
                                   return is_odd({id, 0});
                               }) ||
           std::ranges::any_of(body.results(), [&](const Result& result) { return is_odd(result.value); });
}

/// A state that is not kept has two places by turns, the last step's being the output.
struct StatePlace {
    std::int64_t bytes = 0;
    std::int64_t turns[2] = {0, 0};  ///< in the workspace
};

class BoundScan {
  public:
    BoundScan(const Node& node, Device& device, MakeKernels make)
        : form_(scan_form(node.attributes)),
          device_(device),
          body_(node.attributes.body("body").graph(), device, make,
                whole_inputs(node.attributes.body("body").graph(), form_),
                lies_askew(node.attributes.body("body").graph(), form_)) {
        std::map<NodeId, std::int64_t> scratch;
        for (const PlannedNode& planned : body_.nodes()) scratch[planned.node] = planned.workspace;
        // Results are written where they belong: nothing may be written over them, nor they over others.
        memory_ = plan_memory(body_.graph(),
                              {.workspace = [&](NodeId id) { return scratch.contains(id) ? scratch[id] : 0; },
                               .alignment = device.target().alignment});
        place_states();
        place_constants(make);
        place_results();
        for (const PlannedNode& planned : body_.nodes()) {
            launches_.push_back(bound(planned));
            if (!planned.keep || form_.steps == 0) continue;
            launches_.back().kept = take(planned.kept);
            keeps_.push_back(launches_.back());
            keeps_.back().launch = &planned.keep;
        }
        begin_states();
    }

    std::int64_t workspace() const { return workspace_; }
    std::int64_t launches() const {
        std::int64_t of_step = std::ssize(copies_);
        for (const PlannedNode& planned : body_.nodes()) of_step += planned.launches;
        return of_step * form_.steps + std::ssize(begin_) + std::ssize(keeps_);
    }

    void launch(const Operands& operands) const {
        for (const BodyLaunch& copy : begin_) run(copy, operands, 0);
        for (const BodyLaunch& keep : keeps_) run(keep, operands, 0);
        for (std::int64_t step = 0; step < form_.steps; ++step) {
            for (const BodyLaunch& each : launches_) run(each, operands, step);
            for (const BodyLaunch& copy : copies_) run(copy, operands, step);
        }
    }

  private:
    const Graph& graph() const { return body_.graph(); }
    std::int64_t bytes_of(Value value) const { return graph().type(value).bytes(); }
    Value input(std::size_t i) const { return {graph().inputs()[i], 0}; }

    /// Takes some of the workspace.
    std::int64_t take(std::int64_t bytes) {
        const std::int64_t offset = workspace_;
        workspace_ += body_.aligned(bytes);
        return offset;
    }

    void place_states() {
        workspace_ = body_.aligned(memory_.arena_bytes);
        for (std::size_t i = 0; i < form_.states; ++i) {
            StatePlace place{.bytes = bytes_of(input(i))};
            if (!form_.keeps_states)
                for (std::int64_t& turn : place.turns) turn = take(place.bytes);
            states_.push_back(place);
        }
    }

    void place_constants(MakeKernels make) {
        std::int64_t bytes = 0;
        for (const NodeId id : memory_.constants) {
            constant_offsets_[id] = bytes;
            bytes += body_.aligned(bytes_of({id, 0}));
        }
        if (make == MakeKernels::no || bytes == 0) return;
        constants_ = device_.allocate(static_cast<std::size_t>(bytes), "constants of a loop");
        for (const NodeId id : memory_.constants)
            device_.copy_to_device(constants_->data() + constant_offsets_[id],
                                   constant_bytes(graph().node(id)));
    }

    /// The value whose memory a value fills.
    Value owner(Value value) const {
        while (is_view(graph(), graph().node(value.node))) {
            const Node& node = graph().node(value.node);
            if (bytes_of(value) != bytes_of(node.inputs[0])) break;
            value = node.inputs[0];
        }
        return value;
    }

    Where of_result(std::size_t i) const {
        if (i < form_.states) return {.base = Where::Base::after, .number = i};
        const std::int64_t bytes = bytes_of(graph().results()[i].value);
        return {.base = Where::Base::output, .number = i, .of_step = bytes};
    }

    /// Each result is computed in its place; results that are also another value are copied.
    void place_results() {
        for (std::size_t i = 0; i < graph().results().size(); ++i) {
            const Value value = graph().results()[i].value, from = owner(value);
            const Node& maker = graph().node(from.node);
            const bool computed = !is_source(maker) && !is_view(graph(), maker);
            if (computed && results_.try_emplace(from, of_result(i)).second) continue;
            copied_.emplace_back(value, of_result(i));
        }
        for (const auto& [value, to] : copied_)
            copies_.push_back(copy(graph().type(value), where(value), to));
    }

    /// A copy of a tensor, by the device's kernel of a concatenation.
    BodyLaunch copy(const Type& type, const Where& from, const Where& to) {
        Type row = type;
        row.shape = {type.shape.elements()};
        const Attributes attributes{{"axis", std::int64_t{0}}};
        const Problem problem{find_op("concat"), {&row, 1}, {&row, 1}, attributes};
        for (const Kernel& kernel : device_.kernels("concat"))
            if (auto answer = kernel.prepare(problem)) {
                copy_kernels_.push_back(std::make_unique<Launch>(std::move(answer->launch)));
                return {.launch = copy_kernels_.back().get(), .inputs = {from}, .outputs = {to}};
            }
        throw InternalError("a device copies tensors");
    }

    Where place(Value value) const {
        const Place& place = memory_.place(value);
        switch (place.kind) {
            case Place::Kind::input:
                return of_input(static_cast<std::size_t>(place.index), place.offset);
            case Place::Kind::constant:
                return {
                    .base = Where::Base::constants,
                    .offset = constant_offsets_.at(memory_.constants[static_cast<std::size_t>(place.index)]) +
                              place.offset};
            case Place::Kind::arena:
                return {.base = Where::Base::workspace, .offset = place.offset};
            default:
                return {};
        }
    }

    /// A view of a part of a result lies in it.
    Where part_of_result(Value value) const {
        std::int64_t offset = 0;
        while (!results_.contains(value)) {
            const Node& node = graph().node(value.node);
            if (!is_view(graph(), node)) return {};
            offset += *node.op->view(graph(), node, value.output);
            value = node.inputs[0];
        }
        Where where = results_.at(value);
        where.offset += offset;
        return where;
    }

    Where where(Value value) const {
        const Where in_result = part_of_result(value);
        return in_result.base == Where::Base::nothing ? place(value) : in_result;
    }

    Where of_input(std::size_t i, std::int64_t offset) const {
        if (i < form_.states) return {.base = Where::Base::before, .number = i, .offset = offset};
        const bool sequence = i < form_.states + form_.sequences;
        return {.base = Where::Base::operand,
                .number = i,
                .offset = offset,
                .of_step = sequence ? bytes_of(input(i)) : 0};
    }

    BodyLaunch bound(const PlannedNode& planned) const {
        const Node& node = graph().node(planned.node);
        BodyLaunch launch{.launch = &planned.launch, .inputs = {}, .outputs = {}};
        for (const Value& value : node.inputs) launch.inputs.push_back(where(value));
        for (std::int32_t i = 0; i < static_cast<std::int32_t>(node.outputs.size()); ++i)
            launch.outputs.push_back(where({planned.node, i}));
        launch.workspace =
            std::max<std::int64_t>(memory_.workspace[static_cast<std::size_t>(planned.node)], 0);
        return launch;
    }

    /// Kept states begin with the given ones; without a step the given ones are the result.
    void begin_states() {
        if (!form_.keeps_states && form_.steps > 0) return;
        for (std::size_t i = 0; i < form_.states; ++i) {
            const std::int64_t first = form_.keeps_states ? form_.state_after(0) : 0;
            begin_.push_back(
                copy(graph().type(input(i)), {.base = Where::Base::operand, .number = i},
                     {.base = Where::Base::output, .number = i, .offset = first * bytes_of(input(i))}));
        }
    }

    std::byte* state(const Operands& operands, std::size_t number, std::int64_t steps_done) const {
        const StatePlace& place = states_[number];
        if (form_.keeps_states) return operands.outputs[number] + form_.state_after(steps_done) * place.bytes;
        if (steps_done == form_.steps) return operands.outputs[number];
        // The states that are given are read where they lie.
        if (steps_done == 0) return const_cast<std::byte*>(operands.inputs[number]);
        return operands.workspace + place.turns[steps_done % 2];
    }

    std::byte* address(const Where& where, const Operands& operands, std::int64_t step) const {
        const std::int64_t moved = where.offset + form_.index_of(step) * where.of_step;
        switch (where.base) {
            case Where::Base::operand:
                return const_cast<std::byte*>(operands.inputs[where.number]) + moved;
            case Where::Base::output:
                return operands.outputs[where.number] + moved;
            case Where::Base::workspace:
                return operands.workspace + where.offset;
            case Where::Base::constants:
                return constants_->data() + where.offset;
            case Where::Base::before:
                return state(operands, where.number, step) + where.offset;
            case Where::Base::after:
                return state(operands, where.number, step + 1) + where.offset;
            case Where::Base::nothing:
                break;
        }
        return nullptr;
    }

    void run(const BodyLaunch& each, const Operands& operands, std::int64_t step) const {
        std::vector<const std::byte*> inputs;
        std::vector<std::byte*> outputs;
        for (const Where& where : each.inputs) inputs.push_back(address(where, operands, step));
        for (const Where& where : each.outputs) outputs.push_back(address(where, operands, step));
        (*each.launch)({.inputs = inputs,
                        .outputs = outputs,
                        .workspace = operands.workspace + each.workspace,
                        .kept = operands.workspace + each.kept});
    }

    ScanForm form_;
    Device& device_;
    Plan body_;
    MemoryPlan memory_;
    std::vector<StatePlace> states_;
    std::map<NodeId, std::int64_t> constant_offsets_;
    std::unique_ptr<DeviceMemory> constants_;  // null where there are none
    std::map<Value, Where> results_;           // by the value whose memory they are
    std::vector<std::pair<Value, Where>> copied_;
    std::vector<std::unique_ptr<Launch>> copy_kernels_;
    std::vector<BodyLaunch> begin_, keeps_, launches_, copies_;
    std::int64_t workspace_ = 0;
};

}  // namespace

PreparedKernel prepare_scan(const Node& node, Device& device, MakeKernels make) {
    const auto scan = std::make_shared<const BoundScan>(node, device, make);
    return {.launch = [scan](const Operands& operands) { scan->launch(operands); },
            .workspace = scan->workspace(),
            .launches = scan->launches()};
}

}  // namespace mantissa
