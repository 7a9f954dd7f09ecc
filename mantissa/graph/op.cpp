#include "mantissa/graph/op.h"

#include <fmt/format.h>

#include <map>

#include "mantissa/base/error.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

Cost Op::cost(std::span<const Type> inputs, std::span<const Type> outputs,
              const Attributes& attributes) const {
    Cost cost;
    if (flops) cost.flops = flops(inputs, outputs, attributes);
    if (bytes) {
        cost.bytes = bytes(inputs, outputs, attributes);
        return cost;
    }
    for (const Type& type : inputs) cost.bytes += type.bytes();
    for (const Type& type : outputs) cost.bytes += type.bytes();
    return cost;
}

int Op::written_over(const Attributes& attributes, std::size_t inputs, std::size_t output) const {
    if (in_place_rule) return in_place_rule(attributes, inputs, output);
    const int operand = output < in_place.size() ? in_place[output] : -1;
    return operand < static_cast<int>(inputs) ? operand : -1;
}

const Type& LongerOperands::type(std::size_t operand) const { return graph.type(node.inputs[operand]); }

std::span<const Op* const> op_table() {
    static const std::vector<const Op*> table = [] {
        std::vector<const Op*> rows;
        for (const auto& family : {source_ops(),
                                   elementwise_ops(),
                                   function_ops(),
                                   movement_ops(),
                                   reduction_ops(),
                                   contraction_ops(),
                                   grouped_contraction_ops(),
                                   convolution_ops(),
                                   attention_ops(),
                                   normalization_ops(),
                                   batch_normalization_ops(),
                                   pool_ops(),
                                   activation_ops(),
                                   position_ops(),
                                   order_ops(),
                                   loss_ops(),
                                   optimizer_ops(),
                                   collective_ops(),
                                   scan_ops(),
                                   fused_ops()})
            for (const Op& op : family) {
                check(op.gradient || !op.no_gradient.empty(),
                      "every operation has a gradient or says why not");
                rows.push_back(&op);
            }
        return rows;
    }();
    return table;
}

const Op& find_op(std::string_view name) {
    static const std::map<std::string_view, const Op*> index = [] {
        std::map<std::string_view, const Op*> by_name;
        for (const Op* op : op_table())
            check(by_name.emplace(op->name, op).second, "operations have different names");
        return by_name;
    }();
    const auto entry = index.find(name);
    if (entry == index.end()) throw UserError(fmt::format("there is no operation '{}'", name));
    return *entry->second;
}

}  // namespace mantissa
