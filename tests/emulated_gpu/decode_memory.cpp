// Loads, stores, atomics and copies.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "tests/emulated_gpu/decoder.h"
#include "tests/emulated_gpu/run_memory.h"
#include "tests/emulated_gpu/run_warp.h"

namespace mantissa::inline v0::cuda::ptx {

namespace {

using Where = MemoryAccess::Where;

std::string opcode(const std::vector<std::string>& op) { return fmt::format("{}", fmt::join(op, ".")); }

/// Words that may stand between name and type and change nothing here: hints, scopes, orders.
bool is_hint(const std::string& word) {
    static const std::vector<std::string> known{"weak",
                                                "ca",
                                                "cg",
                                                "cs",
                                                "lu",
                                                "cv",
                                                "wb",
                                                "wt",
                                                "cta",
                                                "cluster",
                                                "gpu",
                                                "sys",
                                                "noftz",
                                                "L1::no_allocate",
                                                "L1::evict_first",
                                                "L1::evict_last",
                                                "L1::evict_normal",
                                                "L1::evict_unchanged",
                                                "L2::64B",
                                                "L2::128B",
                                                "L2::256B",
                                                "L2::evict_last",
                                                "L2::evict_first",
                                                "L2::evict_normal",
                                                "to",
                                                "sync",
                                                "aligned"};
    return std::find(known.begin(), known.end(), word) != known.end();
}

}  // namespace

bool Decoder::memory() {
    const std::string& base = op()[0];
    if (base == "ld" || base == "ldu") return load_or_store(true), true;
    if (base == "st") {
        if (has("async") || has("bulk")) return false;
        return load_or_store(false), true;
    }
    if ((base == "atom" || base == "red") && !has("async")) return atomic(), true;
    if (base == "ldmatrix" || base == "stmatrix") return matrix_rows(base == "ldmatrix"), true;
    if (base == "cp" && has("async") && !has("bulk") && !has("mbarrier")) return copy_async(), true;
    if (base == "prefetch" || base == "prefetchu" || base == "membar" || base == "discard" ||
        base == "applypriority" || (base == "fence" && !has("proxy"))) {
        Instruction made = fresh();
        made.run = run_nothing;
        return add(std::move(made)), true;
    }
    return false;
}

/// The space that the opcode names, and for an address that is a variable its own.
void Decoder::where_of(const TextOperand& operand, Instruction& made, bool is_store) {
    const auto space_words = {std::pair{"global", Where::global}, std::pair{"shared", Where::shared},
                              std::pair{"shared::cta", Where::shared}, std::pair{"local", Where::local},
                              std::pair{"const", Where::constants}};
    for (const auto& [word, where] : space_words)
        if (has(word)) made.memory.where = where;
    address(operand, made);
    if (made.memory.where != Where::generic) return;
    // A generic access to a variable: through its window.
    const Symbol* const variable = operand.name.empty() ? nullptr : find_symbol(operand.name);
    if (variable && variable->space == Space::shared)
        made.offset += static_cast<std::int64_t>(shared_window);
    else if (variable && variable->space == Space::local)
        made.offset += static_cast<std::int64_t>(local_window);
    else if (is_store && variable && variable->space == Space::constant)
        refuse("constants are not written");
}

/// Each access lies in the parameter that it names; of a kernel's also at an address in the space of its
/// parameters, which must lie in them when it runs.
void Decoder::parameter_access(const TextOperand& operand, Instruction& made, std::int64_t bytes,
                               bool is_store) {
    if (registers_.contains(operand.name)) {
        if (is_store) refuse("a kernel's parameters are not written");
        address(operand, made);
        made.memory.where = Where::parameters_at;
        return;
    }
    const Symbol* const named = find_symbol(operand.name);
    if (!named || named->space != Space::param) refuse(fmt::format("'{}' is no parameter", operand.name));
    if (operand.offset < 0 || operand.offset + bytes > named->size)
        refuse(fmt::format("{} bytes at {} of the parameter {}, which has {}", bytes, operand.offset,
                           operand.name, named->size));
    if (operand.offset % bytes != 0)
        refuse(fmt::format("{} bytes at {} of the parameter {} are not aligned", bytes, operand.offset,
                           operand.name));
    if (named->own.base == Place::nowhere) {
        if (is_store) refuse("a kernel's parameters are not written");
        made.memory.where = Where::parameters;
        made.offset = static_cast<std::int64_t>(named->address) + operand.offset;
    } else {
        made.memory.where = Where::own_parameters;
        made.a = named->own;
        made.number = static_cast<std::uint32_t>(named->size);
        made.offset = operand.offset;
    }
}

void Decoder::load_or_store(bool is_load) {
    need_operands(2);
    const std::string& type = op().back();
    const int bytes = bytes_of_type(type);
    if (bytes <= 0 || bytes > 8) refuse(fmt::format("'{}' is not emulated", opcode(op())));
    Instruction made = fresh();
    made.run = is_load ? run_load : run_store;
    made.memory.bytes = static_cast<std::uint8_t>(bytes);
    std::size_t elements = 1;
    bool read_only = false, strong = false;
    for (std::size_t i = 1; i + 1 < op().size(); ++i) {
        const std::string& word = op()[i];
        if (word == "v2" || word == "v4")
            elements = word == "v2" ? 2 : 4;
        else if (word == "nc")
            read_only = true;
        else if (word == "volatile" || word == "relaxed" || word == "acquire" || word == "release" ||
                 word == "mmio")
            strong = true;
        else if (!is_hint(word) && word != "global" && word != "shared" && word != "shared::cta" &&
                 word != "local" && word != "const" && word != "param" && word != "param::entry" &&
                 word != "param::func")
            refuse(fmt::format("'{}' of {} is not emulated", word, opcode(op())));
    }
    if (read_only && !has("global")) refuse(".nc is of global memory");
    made.memory.touch = is_load ? (read_only ? Touch::read_only
                                   : strong  ? Touch::strong_read
                                             : Touch::read)
                                : (strong ? Touch::atomic : Touch::write);
    if (static_cast<std::size_t>(bytes) * elements > 16) refuse("a vector has at most 16 bytes");
    const TextOperand& place = operand(is_load ? 1 : 0);
    const TextOperand& values = operand(is_load ? 0 : 1);
    if (has("param") || has("param::entry") || has("param::func"))
        parameter_access(place, made, bytes * static_cast<std::int64_t>(elements), !is_load);
    else
        where_of(place, made, !is_load);
    const bool vector = values.kind == TextOperand::Kind::vector;
    if (vector != (elements > 1) || (vector && values.parts.size() != elements))
        refuse(fmt::format("{} elements were expected", elements));
    int width = bytes;
    const auto place_of = [&](const TextOperand& one) {
        const auto found = registers_.find(one.name);
        // A register may be wider than what is in memory.
        if (one.kind == TextOperand::Kind::name && found != registers_.end()) {
            width = found->second.width;
            if (width < bytes) refuse(fmt::format("{} is too narrow", one.name));
            return found->second;
        }
        width = std::max(bytes, 2);
        return is_load ? destination(one, width) : source(one, width, type == "f32" || type == "f64");
    };
    for (std::size_t i = 0; i < elements; ++i)
        made.many.push_back(place_of(vector ? values.parts[i] : values));
    made.memory.move = is_load ? load_move(bytes, width, type.starts_with("s")) : store_move(bytes, width);
    add(std::move(made));
}

void Decoder::atomic() {
    const bool returns = op()[0] == "atom";
    const std::string& type = op().back();
    std::string name;
    for (std::size_t i = 1; i + 1 < op().size(); ++i) {
        const std::string& word = op()[i];
        if (is_hint(word) || word == "relaxed" || word == "acquire" || word == "release" ||
            word == "acq_rel" || word == "global" || word == "shared" || word == "shared::cta")
            continue;
        name = word + "." + type;
    }
    if (!atomic_function(name)) refuse(fmt::format("'{}' is not emulated", opcode(op())));
    const bool swaps = name.starts_with("cas.");
    const std::size_t first = returns ? 1 : 0;
    need_operands(first + (swaps ? 3 : 2));
    const int bytes = bytes_of_type(type);
    Instruction made = fresh();
    made.run = run_atomic;
    made.number = number_of_atomic(name);
    made.memory.bytes = static_cast<std::uint8_t>(bytes);
    where_of(operand(first), made, true);
    if (returns) made.d = destination(operand(0), bytes);
    const bool is_float = type == "f32" || type == "f64";
    made.b = source(operand(first + 1), bytes, is_float);
    if (swaps) made.c = source(operand(first + 2), bytes);
    if (made.memory.where != Where::shared) (kernel_ ? kernel_->adds_to_global : functions_add_) = true;
    add(std::move(made));
}

/// cp.async.ca.shared.global [to], [from], bytes{, source bytes}; commit_group; wait_group n; wait_all.
void Decoder::copy_async() {
    Instruction made = fresh();
    if (has("commit_group")) {
        made.run = run_commit_group;
        return add(std::move(made));
    }
    if (has("wait_group") || has("wait_all")) {
        made.run = run_wait_group;
        if (has("wait_group")) need_operands(1);
        made.number = has("wait_all") ? ~std::uint32_t{0} : static_cast<std::uint32_t>(operand(0).bits);
        return add(std::move(made));
    }
    if (!has("global") || !(has("shared") || has("shared::cta")))
        refuse(fmt::format("'{}' is not emulated", opcode(op())));
    need_operands(3, 4);
    made.run = run_copy_async;
    const std::uint64_t bytes = operand(2).bits;
    if (has("cg") ? bytes != 16 : bytes != 4 && bytes != 8 && bytes != 16)
        refuse(fmt::format("{} bytes are not copied so", bytes));
    made.memory.bytes = static_cast<std::uint8_t>(bytes);
    Instruction from = fresh();
    address(operand(1), from);
    if (from.a.width != 8) refuse("a global address has 64 bits");
    address(operand(0), made);
    made.b = from.a;
    made.target = static_cast<std::uint32_t>(from.offset);
    if (now_->operands.size() == 4) made.c = source(operand(3), 4);
    add(std::move(made));
}

void Decoder::matrix_rows(bool is_load) {
    need_operands(2);
    if (!has("m8n8") || op().back() != "b16") refuse(fmt::format("'{}' is not emulated", opcode(op())));
    const std::size_t count = has("x4") ? 4 : has("x2") ? 2 : 1;
    Instruction made = fresh();
    made.run = is_load ? run_load_matrix : run_store_matrix;
    made.number = has("trans") ? 1 : 0;
    address(operand(is_load ? 1 : 0), made);
    const TextOperand& values = operand(is_load ? 0 : 1);
    if (values.parts.size() != count) refuse(fmt::format("{} registers were expected", count));
    for (const TextOperand& one : values.parts)
        made.many.push_back(is_load ? destination(one, 4) : source(one, 4));
    add(std::move(made));
}

}  // namespace mantissa::cuda::ptx
