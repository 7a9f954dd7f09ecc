// Control flow, calls, barriers, and what goes across lanes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "tests/emulated_gpu/decoder.h"
#include "tests/emulated_gpu/run_warp.h"

namespace mantissa::inline v0::cuda::ptx {

bool Decoder::control() {
    const std::string& base = op()[0];
    if (base == "bra" || base == "brx") return branch(), true;
    if (base == "call") return call(), true;
    if ((base == "bar" || base == "barrier") && !has("cluster")) return barrier(), true;
    Instruction made = fresh();
    if (base == "ret" || base == "exit") {
        const bool returns = base == "ret" && !kernel_;
        made.run = returns ? run_return : run_exit;
        if (returns) made.a = program_.functions[function_->name].returns_to;
    } else if (base == "trap" || base == "brkpt") {
        made.run = run_trap;
    } else if (base == "nanosleep" || base == "griddepcontrol" || base == "setmaxnreg") {
        made.run = run_nothing;
    } else {
        return false;
    }
    add(std::move(made));
    return true;
}

void Decoder::branch() {
    Instruction made = fresh();
    if (op()[0] == "bra") {
        need_operands(1);
        made.run = run_branch;
        branches_.emplace_back(program_.code.size(), operand(0).name);
        return add(std::move(made));
    }
    need_operands(2);
    made.run = run_branch_by_index;
    made.a = source(operand(0), 4);
    const auto found = function_->branch_targets.find(operand(1).name);
    if (found == function_->branch_targets.end()) refuse(fmt::format("there is no list {}", operand(1).name));
    branch_tables_.emplace_back(program_.code.size(), found->second);
    add(std::move(made));
}

/// call (results), name, (arguments): copies there, the jump, copies back.
void Decoder::call() {
    const TextOperand* results = nullptr;
    const TextOperand* arguments = nullptr;
    std::string name;
    for (const TextOperand& one : now_->operands) {
        if (one.kind == TextOperand::Kind::vector)
            (name.empty() ? results : arguments) = &one;
        else if (name.empty())
            name = one.name;
        else
            refuse("calls through an address are not emulated");
    }
    const auto found = program_.functions.find(name);
    if (found == program_.functions.end())
        refuse(fmt::format("'{}' has no body before this call, and calls of itself are not emulated", name));
    const CalledFunction& callee = found->second;
    const auto copies = [&](const TextOperand* list, const std::vector<Place>& own,
                            const std::vector<std::int64_t>& bytes, bool into) {
        if ((list ? list->parts.size() : 0) != own.size())
            refuse(fmt::format("{} takes {} here", name, own.size()));
        Instruction made = fresh();
        made.run = run_copy_arguments;
        for (std::size_t i = 0; i < own.size(); ++i) {
            const TextOperand& one = list->parts[i];
            const Symbol* const handed =
                one.kind == TextOperand::Kind::name ? find_symbol(one.name) : nullptr;
            if (handed && handed->size != bytes[i])
                refuse(fmt::format("{} has {} bytes", one.name, handed->size));
            const Place place = handed ? handed->own : source(one, static_cast<int>(bytes[i]));
            made.many.push_back(into ? own[i] : place);
            made.many.push_back(into ? place : own[i]);
            made.targets.push_back(static_cast<std::uint32_t>(bytes[i]));
        }
        if (!own.empty()) add(std::move(made));
    };
    copies(arguments, callee.parameters, callee.parameter_bytes, true);
    Instruction made = fresh();
    made.run = run_call;
    made.target = callee.first;
    made.d = callee.returns_to;
    add(std::move(made));
    copies(results, callee.results, callee.result_bytes, false);
}

void Decoder::barrier() {
    Instruction made = fresh();
    if (has("warp")) {
        need_operands(1);
        made.run = run_warp_barrier;
        made.a = source(operand(0), 4);
        return add(std::move(made));
    }
    need_operands(1, 4);
    made.run = run_barrier;
    std::size_t at = 0;
    if (has("red")) {
        static const std::array kinds{"and", "or", "popc"};
        const auto kind =
            std::find_if(kinds.begin(), kinds.end(), [&](const char* word) { return has(word); });
        made.number = 32 | static_cast<std::uint32_t>(kind - kinds.begin());
        if (kind == kinds.end()) refuse("a reduction was expected");
        made.d = has("popc") ? destination(operand(at++), 4) : predicate(operand(at++).name);
    } else if (has("arrive")) {
        made.number = 16;
    }
    need_operands(at + 1, at + 3);
    const std::size_t last = now_->operands.size() - (has("red") ? 1 : 0);
    made.a = source(operand(at), 4);
    if (at + 1 < last) made.b = source(operand(at + 1), 4);
    if (has("red")) made.c = predicate_source(now_->operands.back(), made);
    add(std::move(made));
}

bool Decoder::across_lanes() {
    const std::string& base = op()[0];
    if (base == "shfl") return shuffle(), true;
    if (base == "vote") return vote(), true;
    if (base == "match") return match(), true;
    if (base == "redux") return reduce(), true;
    if (base == "mma") return matrix_product(), true;
    Instruction made = fresh();
    if (base == "activemask") {
        need_operands(1);
        made.run = run_active_mask;
        made.d = destination(operand(0), 4);
    } else if (base == "elect") {
        need_operands(2);
        made.run = run_elect;
        made.d = destination(operand(0), 4);
        if (!operand(0).second.empty()) made.many.push_back(predicate(operand(0).second));
        made.e = source(operand(1), 4);
    } else {
        return false;
    }
    add(std::move(made));
    return true;
}

void Decoder::shuffle() {
    if (!has("sync")) refuse("without .sync it is not of this architecture");
    need_operands(5);
    static const std::array modes{"up", "down", "bfly", "idx"};
    const auto mode = std::find_if(modes.begin(), modes.end(), [&](const char* word) { return has(word); });
    if (mode == modes.end() || op().back() != "b32")
        refuse(fmt::format("'{}' is not emulated", fmt::join(op(), ".")));
    Instruction made = fresh();
    made.run = run_shuffle;
    made.number = static_cast<std::uint32_t>(mode - modes.begin());
    made.d = destination(operand(0), 4);
    if (!operand(0).second.empty()) made.many.push_back(predicate(operand(0).second));
    made.a = source(operand(1), 4);
    made.b = source(operand(2), 4);
    made.c = source(operand(3), 4);
    made.e = source(operand(4), 4);
    add(std::move(made));
}

void Decoder::vote() {
    if (!has("sync")) refuse("without .sync it is not of this architecture");
    need_operands(3);
    Instruction made = fresh();
    made.run = run_vote;
    made.number = has("all") ? 0 : has("any") ? 1 : has("uni") ? 2 : 3;
    made.d = made.number == 3 ? destination(operand(0), 4) : predicate(operand(0).name);
    made.a = predicate_source(operand(1), made);
    made.e = source(operand(2), 4);
    add(std::move(made));
}

void Decoder::match() {
    need_operands(3);
    Instruction made = fresh();
    made.run = run_match;
    made.number = has("all") ? 1 : 0;
    made.d = destination(operand(0), 4);
    if (!operand(0).second.empty()) made.many.push_back(predicate(operand(0).second));
    made.a = source(operand(1), op().back() == "b64" ? 8 : 4);
    made.e = source(operand(2), 4);
    add(std::move(made));
}

void Decoder::reduce() {
    need_operands(3);
    if (op().size() < 3) refuse("an operation and a type were expected");
    static const std::array names{"add.u32", "min.u32", "max.u32", "min.s32",
                                  "max.s32", "and.b32", "or.b32",  "xor.b32"};
    std::string name = op()[op().size() - 2] + "." + op().back();
    if (name == "add.s32") name = "add.u32";
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) refuse(fmt::format("'{}' is not emulated", fmt::join(op(), ".")));
    Instruction made = fresh();
    made.run = run_reduce;
    made.number = static_cast<std::uint32_t>(found - names.begin());
    made.d = destination(operand(0), 4);
    made.a = source(operand(1), 4);
    made.e = source(operand(2), 4);
    add(std::move(made));
}

/// mma.sync.aligned.shape.row.col.dtype.atype.btype.ctype d, a, b, c
void Decoder::matrix_product() {
    need_operands(4);
    if (op().size() < 10 && !has("f64")) refuse(fmt::format("'{}' is not emulated", fmt::join(op(), ".")));
    if (!has("sync") || !has("aligned") || !has("row") || !has("col"))
        refuse("it is mma.sync.aligned with A by rows and B by columns");
    std::string shape, types;
    for (std::size_t i = 1; i < op().size(); ++i) {
        if (op()[i].starts_with("m") && op()[i].find('n') != std::string::npos) shape = op()[i];
        if (i + 4 >= op().size()) types += (types.empty() ? "" : ".") + op()[i];
    }
    const int found = find_matrix_product(shape, types);
    if (found < 0) refuse(fmt::format("'{}' is not emulated", fmt::join(op(), ".")));
    const MatrixShape& product = matrix_shape(found);
    if (const int target = std::atoi(module_.target.c_str() + 3);
        target < product.min_architecture || module_.version < product.min_version)
        refuse(fmt::format("the instruction needs sm_{} and PTX {}.{}", product.min_architecture,
                           product.min_version / 10, product.min_version % 10));
    const bool is_double = types.starts_with("f64");
    const int width = is_double ? 8 : 4;
    Instruction made = fresh();
    made.run = run_matrix_product;
    made.number = static_cast<std::uint32_t>(found);
    const int counts[] = {product.c_registers, product.a_registers, product.b_registers, product.c_registers};
    for (std::size_t i = 0; i < 4; ++i) {
        const auto& parts = operand(i).parts;
        if (static_cast<int>(parts.size()) != counts[i])
            refuse(fmt::format("operand {} has {} registers", i + 1, counts[i]));
        const bool sums = i == 3 && types.starts_with("f32");
        for (const TextOperand& one : parts)
            made.many.push_back(i == 0 ? destination(one, width) : source(one, width, sums || is_double));
    }
    int n = 0, m = 0, k = 0;
    std::sscanf(shape.c_str(), "m%dn%dk%d", &m, &n, &k);
    made.flops = 2 * m * n * k / warp_lanes;
    add(std::move(made));
}

}  // namespace mantissa::cuda::ptx
