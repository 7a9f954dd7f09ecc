// Arithmetic, conversions, comparisons and moves: what stays within a lane.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "tests/emulated_gpu/decoder.h"
#include "tests/emulated_gpu/run_warp.h"

namespace mantissa::inline v0::cuda::ptx {

namespace {

bool is_float_type(const std::string& type) {
    return type == "f32" || type == "f64" || type == "f16" || type == "f16x2" || type == "bf16" ||
           type == "bf16x2";
}

bool is_rounding(const std::string& word) {
    return word == "rn" || word == "rz" || word == "rm" || word == "rp";
}

/// The rounding of the processor's mode register: to nearest, down, up, towards zero.
std::uint32_t processor_rounding(const std::string& word) {
    return word == "rm" ? 0x2000 : word == "rp" ? 0x4000 : word == "rz" ? 0x6000 : 0;
}

/// Without the rounding and the type: "mul.ftz.sat".
std::string name_of(const std::vector<std::string>& op) {
    std::string name = op[0];
    for (std::size_t i = 1; i + 1 < op.size(); ++i)
        if (!is_rounding(op[i])) name += "." + op[i];
    return name;
}

/// Bytes of result and operands where they are not all of the type's: the result first.
std::vector<int> widths_of(const std::string& name, int width, std::size_t operands) {
    if (name == "mul.wide") return {2 * width, width, width};
    if (name == "mad.wide") return {2 * width, width, width, 2 * width};
    if (name == "shl" || name == "shr") return {width, width, 4};
    if (name == "bfe") return {width, width, 4, 4};
    if (name == "bfi") return {width, width, width, 4, 4};
    if (name == "popc" || name == "clz" || name == "bfind") return {4, width};
    return std::vector<int>(operands, width);
}

int flops_of(const std::string& base, const std::string& type) {
    if (!is_float_type(type)) return 0;
    const int numbers = type.ends_with("x2") ? 2 : 1;
    if (base == "fma" || base == "mad") return 2 * numbers;
    static const std::array counted{"add",   "sub", "mul", "div", "rcp", "sqrt",
                                    "rsqrt", "sin", "cos", "lg2", "ex2", "tanh"};
    return std::find(counted.begin(), counted.end(), base) != counted.end() ? numbers : 0;
}

/// Instructions that must say how they round, or that they approximate.
bool lacks_rounding(const std::vector<std::string>& op) {
    const bool f32 = op.back() == "f32", f64 = op.back() == "f64";
    if (!f32 && !f64) return false;
    const std::string& base = op[0];
    if (base != "fma" && base != "div" && base != "rcp" && base != "sqrt" && base != "rsqrt") return false;
    return std::none_of(op.begin(), op.end(), [](const std::string& word) {
        return is_rounding(word) || word == "approx" || word == "full";
    });
}

void run_conversion(Instruction& made, const LaneConversion& conversion) {
    made.run = run_lanes;
    made.lanes = conversion.lanes;
    made.number = conversion.number;
}

}  // namespace

void Decoder::lane_instruction(LaneFunction lanes, const std::vector<int>& widths) {
    need_operands(widths.size());
    Instruction made = fresh();
    made.lanes = lanes;
    made.run = run_lanes;
    const bool floats = is_float_type(op().back());
    made.d = destination(operand(0), widths[0]);
    Place* const places[] = {&made.a, &made.b, &made.c, &made.e};
    for (std::size_t i = 1; i < widths.size(); ++i) *places[i - 1] = source(operand(i), widths[i], floats);
    made.flops = flops_of(op()[0], op().back());
    for (const std::string& word : op())
        if (is_rounding(word)) made.rounding = processor_rounding(word);
    if (made.rounding != 0) {
        if (op().back() != "f32" && op().back() != "f64")
            refuse("this rounding of 16-bit numbers is not emulated");
        made.run = run_rounded_lanes;
    }
    add(std::move(made));
}

bool Decoder::arithmetic() {
    const std::string& base = op()[0];
    if (base == "cvt") return convert(), true;
    if (base == "mov") return move(), true;
    if (base == "cvta") return convert_address(), true;
    if (base == "setp") return compare(), true;
    if (base == "set") return set_from_comparison(), true;
    if (base == "selp" || base == "slct") return select(), true;
    if (base == "testp") return class_test(), true;
    const std::string& type = op().back();
    if (type == "pred" && op().size() == 2 &&
        (base == "and" || base == "or" || base == "xor" || base == "not"))
        return predicate_logic(), true;
    if ((base == "lop3" || base == "prmt") && (op().size() == 2 || op().size() == 3)) {
        // lop3.b32 d, a, b, c, table; prmt.b32{.mode}: the mode stands behind the type.
        const std::string name = base == "prmt" && type != "b32" ? "prmt." + type : base;
        LaneFunction const lanes = lane_function(name + ".b32");
        if (!lanes || op()[1] != "b32") return false;
        need_operands(base == "lop3" ? 5 : 4);
        Instruction made = fresh();
        made.run = run_lanes;
        made.lanes = lanes;
        made.d = destination(operand(0), 4);
        made.a = source(operand(1), 4);
        made.b = source(operand(2), 4);
        made.c = source(operand(3), 4);
        if (base == "lop3") made.number = static_cast<std::uint32_t>(operand(4).bits);
        return add(std::move(made)), true;
    }
    if (lacks_rounding(op())) refuse("the rounding is missing");
    std::string name = name_of(op());
    if (base == "mad" && is_float_type(type)) name.replace(0, 3, "fma");
    if (base == "min" || base == "max")
        if (const LaneFunction same = lane_function(name + "." + type); !same && type.starts_with("b"))
            return false;
    LaneFunction const lanes = lane_function(name + "." + type);
    const int width = bytes_of_type(type);
    if (!lanes || width <= 0) return false;
    lane_instruction(lanes, widths_of(name, width, now_->operands.size()));
    return true;
}

void Decoder::convert() {
    std::string rounding, types[2];
    bool flush = false, saturate = false, relu = false;
    for (std::size_t i = 1; i < op().size(); ++i) {
        const std::string& word = op()[i];
        if (word == "ftz")
            flush = true;
        else if (word == "sat" || word == "satfinite")
            saturate = word == "sat";
        else if (word == "relu")
            relu = true;
        else if (i + 2 >= op().size())
            types[i + 2 - op().size()] = word;
        else
            rounding = word;
    }
    const auto& [to, from] = types;
    const bool two = to.ends_with("x2");
    need_operands(two ? 3 : 2);
    const LaneConversion conversion = lane_conversion(to, from, rounding, flush, saturate, relu);
    const int width = to.starts_with("e") ? 2 : bytes_of_type(to), from_width = bytes_of_type(from);
    if (!conversion.lanes || width <= 0 || from_width <= 0)
        refuse(fmt::format("'{}' is not emulated", fmt::join(op(), ".")));
    if (is_float_type(to) && is_float_type(from) && width < from_width && rounding.empty())
        refuse("the rounding is missing");
    Instruction made = fresh();
    run_conversion(made, conversion);
    // A register may be wider than the type: of an operand the low bits count, a result is extended.
    const auto of_width = [](int bytes, bool sign) { return (sign ? "s" : "u") + std::to_string(8 * bytes); };
    const auto narrowed = [&](const TextOperand& given) {
        const auto found = registers_.find(given.name);
        if (given.kind != TextOperand::Kind::name || found == registers_.end() ||
            found->second.width == from_width)
            return source(given, from_width, is_float_type(from));
        if (found->second.width < from_width) refuse(fmt::format("{} is too narrow", given.name));
        Instruction narrow = fresh();
        run_conversion(narrow,
                       lane_conversion(of_width(from_width, false), of_width(found->second.width, false), "",
                                       false, false, false));
        narrow.a = found->second;
        const Place low = narrow.d = add_register(from_width);
        add(std::move(narrow));
        return low;
    };
    made.a = narrowed(operand(1));
    if (two) made.b = narrowed(operand(2));
    const auto found = registers_.find(operand(0).name);
    if (found == registers_.end() || found->second.width <= width) {
        made.d = destination(operand(0), width);
        return add(std::move(made));
    }
    const bool sign = to.starts_with("s");
    Instruction widen = fresh();
    run_conversion(widen, lane_conversion(of_width(found->second.width, sign), of_width(width, sign), "",
                                          false, false, false));
    widen.a = made.d = add_register(width);
    widen.d = found->second;
    add(std::move(made));
    add(std::move(widen));
}

void Decoder::move() {
    need_operands(2);
    using Kind = TextOperand::Kind;
    if (operand(0).kind == Kind::vector || operand(1).kind == Kind::vector) return move_from_vector();
    Instruction made = fresh();
    const std::string& type = op().back();
    if (type == "pred") {
        made.run = run_predicate_logic;
        made.d = predicate(operand(0).name);
        made.a = predicate_source(operand(1), made);
        made.number = operand(1).negated ? 4 : 0;
        made.b = made.a;
        return add(std::move(made));
    }
    const int width = bytes_of_type(type);
    made.run = run_lanes;
    made.lanes = lane_function("mov.b" + std::to_string(8 * width));
    if (!made.lanes) refuse(fmt::format("'{}' is not emulated", fmt::join(op(), ".")));
    made.d = destination(operand(0), width);
    made.a = source(operand(1), width, type == "f32" || type == "f64");
    add(std::move(made));
}

void Decoder::move_from_vector() {
    Instruction made = fresh();
    const int width = bytes_of_type(op().back());
    const bool pack = operand(1).kind == TextOperand::Kind::vector;
    const auto& parts = operand(pack ? 1 : 0).parts;
    const int part = parts.empty() ? 0 : width / static_cast<int>(parts.size());
    if (part < 1 || part * static_cast<int>(parts.size()) != width) refuse("the parts do not make the whole");
    made.run = pack ? run_pack : run_unpack;
    if (pack)
        made.d = destination(operand(0), width);
    else
        made.a = source(operand(1), width);
    for (const TextOperand& one : parts)
        made.many.push_back(pack ? source(one, part) : destination(one, part));
    add(std::move(made));
}

/// cvta.space: from the space's window to the generic address, and with .to back.
void Decoder::convert_address() {
    need_operands(2);
    const bool back = has("to");
    const std::uint64_t window = has("shared") ? shared_window : has("local") ? local_window : 0;
    Instruction made = fresh();
    made.run = run_lanes;
    made.lanes = lane_function("add.u64");
    made.d = destination(operand(0), 8);
    made.a = source(operand(1), 8);
    made.b = constant(back ? 0 - window : window, 8);
    add(std::move(made));
}

namespace {

std::string comparison_name(const std::vector<std::string>& op, const std::string& type, bool flush) {
    return op[1] + (flush ? ".ftz." : ".") + type;
}

}  // namespace

void Decoder::compare() {
    if (op().size() < 3) refuse("a comparison and a type were expected");
    const std::string& type = op().back();
    Instruction made = fresh();
    made.run = run_compare;
    made.test = lane_test(comparison_name(op(), type, has("ftz")));
    if (!made.test) refuse(fmt::format("'{}' is not emulated", fmt::join(op(), ".")));
    made.number = has("and") ? 1 : has("or") ? 2 : has("xor") ? 3 : 0;
    need_operands(made.number ? 4 : 3);
    if (operand(0).name != "_") made.d = predicate(operand(0).name);
    if (!operand(0).second.empty() && operand(0).second != "_") made.e = predicate(operand(0).second);
    const int width = bytes_of_type(type);
    made.a = source(operand(1), width, is_float_type(type));
    made.b = source(operand(2), width, is_float_type(type));
    if (made.number) made.c = predicate_source(operand(3), made);
    add(std::move(made));
}

void Decoder::set_from_comparison() {
    need_operands(3);
    if (op().size() < 4) refuse("a comparison and two types were expected");
    const std::string &type = op().back(), &result = op()[op().size() - 2];
    Instruction made = fresh();
    made.run = run_set;
    made.test = lane_test(comparison_name(op(), type, has("ftz")));
    if (!made.test || bytes_of_type(result) != 4)
        refuse(fmt::format("'{}' is not emulated", fmt::join(op(), ".")));
    made.number = result == "f32" ? 0x3f800000 : ~std::uint32_t{0};
    made.d = destination(operand(0), 4);
    made.a = source(operand(1), bytes_of_type(type), is_float_type(type));
    made.b = source(operand(2), bytes_of_type(type), is_float_type(type));
    add(std::move(made));
}

void Decoder::select() {
    need_operands(4);
    const bool by_sign = op()[0] == "slct";
    if (by_sign && op().size() < 3) refuse("two types were expected");
    const std::string& type = by_sign ? op()[op().size() - 2] : op().back();
    const int width = bytes_of_type(type);
    if (width <= 0) refuse(fmt::format("'{}' is not emulated", fmt::join(op(), ".")));
    Instruction made = fresh();
    made.run = by_sign ? run_select_by_sign : run_select;
    made.d = destination(operand(0), width);
    made.a = source(operand(1), width, type == "f32" || type == "f64");
    made.b = source(operand(2), width, type == "f32" || type == "f64");
    if (by_sign) {
        const bool is_float = op().back() == "f32";
        made.number = (is_float ? 1u : 0u) | (has("ftz") ? 2u : 0u);
        made.c = source(operand(3), 4, is_float);
    } else {
        made.c = predicate_source(operand(3), made);
    }
    add(std::move(made));
}

void Decoder::predicate_logic() {
    const bool negates = op()[0] == "not";
    need_operands(negates ? 2 : 3);
    Instruction made = fresh();
    made.run = run_predicate_logic;
    made.number = negates ? 4 : op()[0] == "and" ? 1 : op()[0] == "or" ? 2 : 3;
    made.d = predicate(operand(0).name);
    Instruction signs;
    made.a = predicate_source(operand(1), signs);
    if (signs.operand_negated) refuse("a negated operand is not taken here");
    made.b = negates ? made.a : predicate_source(operand(2), signs);
    if (signs.operand_negated) refuse("a negated operand is not taken here");
    add(std::move(made));
}

void Decoder::class_test() {
    need_operands(2);
    static const std::array kinds{"finite", "infinite", "number", "notanumber", "normal", "subnormal"};
    if (op().size() < 3) refuse("what to test and a type were expected");
    Instruction made = fresh();
    made.run = run_class_test;
    const auto kind = std::find(kinds.begin(), kinds.end(), op()[1]);
    const int width = bytes_of_type(op().back());
    if (kind == kinds.end() || width < 4) refuse(fmt::format("'{}' is not emulated", fmt::join(op(), ".")));
    made.number = static_cast<std::uint32_t>(kind - kinds.begin());
    made.d = predicate(operand(0).name);
    made.a = source(operand(1), width, true);
    add(std::move(made));
}

}  // namespace mantissa::cuda::ptx
