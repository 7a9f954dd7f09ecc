// Names and numbers of statements, as places.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/emulated_gpu/decoder.h"

namespace mantissa::inline v0::cuda::ptx {

void Decoder::refuse(const std::string& why) const { throw TextError{now_ ? now_->line : 0, why}; }

Place Decoder::add_register(int width) {
    const Place made{static_cast<std::uint32_t>(program_.register_bytes), Place::registers,
                     static_cast<std::uint8_t>(width)};
    program_.register_bytes += std::max(64, width * warp_lanes);
    return made;
}

Place Decoder::constant(std::uint64_t bits, int width) {
    const auto [found, is_new] = constants_.try_emplace({bits, width});
    if (is_new) {
        found->second = {static_cast<std::uint32_t>(program_.constants.size()), Place::constants,
                         static_cast<std::uint8_t>(width)};
        const auto bytes = static_cast<std::size_t>(std::max(width, 1));
        program_.constants.resize(program_.constants.size() + std::max<std::size_t>(64, bytes * warp_lanes));
        for (std::size_t lane = 0; lane < warp_lanes; ++lane)
            std::memcpy(program_.constants.data() + found->second.offset + lane * bytes, &bits, bytes);
    }
    return found->second;
}

namespace {

/// By name without the %.
const std::map<std::string, Special>& special_registers() {
    static const std::map<std::string, Special> all{
        {"tid.x", Special::tid_x},
        {"tid.y", Special::tid_y},
        {"tid.z", Special::tid_z},
        {"ntid.x", Special::ntid_x},
        {"ntid.y", Special::ntid_y},
        {"ntid.z", Special::ntid_z},
        {"ctaid.x", Special::ctaid_x},
        {"ctaid.y", Special::ctaid_y},
        {"ctaid.z", Special::ctaid_z},
        {"nctaid.x", Special::nctaid_x},
        {"nctaid.y", Special::nctaid_y},
        {"nctaid.z", Special::nctaid_z},
        {"laneid", Special::laneid},
        {"warpid", Special::warpid},
        {"nwarpid", Special::nwarpid},
        {"smid", Special::smid},
        {"nsmid", Special::nsmid},
        {"gridid", Special::gridid},
        {"lanemask_eq", Special::lanemask_eq},
        {"lanemask_le", Special::lanemask_le},
        {"lanemask_lt", Special::lanemask_lt},
        {"lanemask_ge", Special::lanemask_ge},
        {"lanemask_gt", Special::lanemask_gt},
        {"dynamic_smem_size", Special::dynamic_smem_size},
        {"total_smem_size", Special::total_smem_size},
    };
    return all;
}

}  // namespace

Place Decoder::destination(const TextOperand& operand, int width) {
    if (operand.name == "_") return {};
    const auto found = registers_.find(operand.name);
    if (operand.kind != TextOperand::Kind::name || found == registers_.end())
        refuse(fmt::format("'{}' is no register", operand.name));
    if (found->second.width != width)
        refuse(fmt::format("{} has {} bytes, and the instruction writes {}", operand.name,
                           found->second.width, width));
    return found->second;
}

Place Decoder::number_of_type(const TextOperand& operand, int width, bool is_float) {
    using Kind = TextOperand::Kind;
    if (operand.kind == Kind::f32) {
        if (is_float && width == 8)
            return constant(std::bit_cast<std::uint64_t>(
                                double{std::bit_cast<float>(static_cast<std::uint32_t>(operand.bits))}),
                            8);
        return constant(operand.bits, width);
    }
    if (operand.kind == Kind::f64) {
        if (width == 4)
            return constant(
                std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(operand.bits))), 4);
        return constant(operand.bits, width);
    }
    if (is_float) refuse("a float is written 0fXXXXXXXX or with a point");
    const std::uint64_t mask = width == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * width)) - 1;
    return constant(operand.bits & mask, width);
}

Place Decoder::source(const TextOperand& operand, int width, bool is_float) {
    if (operand.kind != TextOperand::Kind::name) {
        if (operand.kind == TextOperand::Kind::vector || operand.kind == TextOperand::Kind::address)
            refuse("a register or a number was expected");
        return number_of_type(operand, width, is_float);
    }
    if (const auto found = registers_.find(operand.name); found != registers_.end()) {
        if (found->second.width != width)
            refuse(fmt::format("{} has {} bytes, and the instruction reads {}", operand.name,
                               found->second.width, width));
        return found->second;
    }
    if (operand.name == "WARP_SZ") return constant(warp_lanes, width);
    if (operand.name.starts_with("%")) {
        const auto special = special_registers().find(operand.name.substr(1));
        if (special == special_registers().end())
            refuse(fmt::format("'{}' is no register that is emulated", operand.name));
        if (width != 4)
            refuse(fmt::format("{} has 4 bytes, and the instruction reads {}", operand.name, width));
        return {static_cast<std::uint32_t>(special->second) * 4 * warp_lanes, Place::specials, 4};
    }
    return constant(address_of(operand.name) + static_cast<std::uint64_t>(operand.offset), width);
}

Place Decoder::predicate(const std::string& name) {
    const auto found = registers_.find(name);
    if (found == registers_.end() || found->second.width != 0)
        refuse(fmt::format("'{}' is no predicate", name));
    return found->second;
}

Place Decoder::predicate_source(const TextOperand& operand, Instruction& made) {
    made.operand_negated = operand.negated;
    if (operand.kind == TextOperand::Kind::integer) return constant(operand.bits ? ~std::uint32_t{0} : 0, 4);
    return predicate(operand.name);
}

const Decoder::Symbol* Decoder::find_symbol(const std::string& name) const {
    const auto found = symbols_.find(name);
    return found == symbols_.end() ? nullptr : &found->second;
}

/// The address of a variable, in the window of its space.
std::uint64_t Decoder::address_of(const std::string& name) const {
    const Symbol* const found = find_symbol(name);
    if (!found) refuse(fmt::format("'{}' is not known", name));
    if (found->space == Space::param && found->own.base != Place::nowhere)
        refuse("the address of a function's parameter is not emulated");
    return found->address;
}

void Decoder::need_operands(std::size_t least, std::size_t most) const {
    if (now_->operands.size() < least || now_->operands.size() > std::max(least, most))
        refuse(fmt::format("'{}' has {} operands", fmt::join(op(), "."), now_->operands.size()));
}

bool Decoder::has(const char* word) const {
    return std::find(now_->op.begin() + 1, now_->op.end(), word) != now_->op.end();
}

void Decoder::address(const TextOperand& operand, Instruction& made) {
    if (operand.kind != TextOperand::Kind::address) refuse("an address in brackets was expected");
    made.offset = operand.offset;
    if (operand.name.empty()) {
        made.a = constant(0, 8);
        return;
    }
    if (const auto found = registers_.find(operand.name); found != registers_.end()) {
        if (found->second.width < 4) refuse("an address has 32 or 64 bits");
        made.a = found->second;
        return;
    }
    made.a = constant(address_of(operand.name), 8);
}

Instruction Decoder::fresh() const {
    Instruction made;
    made.line = now_->line;
    return made;
}

}  // namespace mantissa::cuda::ptx
