// Fused kernels as text for people. The text also tells kernels apart, so it says everything.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mantissa/codegen/loop_nest.h"

namespace mantissa::inline v0::codegen {

namespace {

std::string row_of(const Access& access) {
    std::string row = "r";
    if (access.divide != 1) row += fmt::format(" / {}", access.divide);
    if (access.modulo != 0) row += fmt::format(" % {}", access.modulo);
    return row;
}

class Writer {
  public:
    explicit Writer(const LoopNest& nest) : nest_(nest) {}

    std::string run() {
        header();
        for (int index : nest_.once) write(index);
        if (nest_.flat)
            line("for each element c:");
        else
            line("for each row r:");
        indent_ += 2;
        for (int index : nest_.row_steps) write(index);
        for (const Walk& walk : nest_.walks) write(walk);
        return text_;
    }

  private:
    template <class... Args>
    void line(fmt::format_string<Args...> format, Args&&... args) {
        text_ += std::string(static_cast<std::size_t>(indent_), ' ') +
                 fmt::format(format, std::forward<Args>(args)...) + "\n";
    }

    const Step& step(int index) const { return nest_.steps[index]; }

    void header() {
        std::vector<std::string> parts;
        for (std::size_t i = 0; i < nest_.inputs.size(); ++i)
            parts.push_back(fmt::format("in{}: {}", i, name_of(nest_.inputs[i])));
        std::string inputs = fmt::format("{}", fmt::join(parts, ", "));
        parts.clear();
        for (std::size_t i = 0; i < nest_.outputs.size(); ++i)
            parts.push_back(fmt::format("out{}: {}", i, name_of(nest_.outputs[i])));
        line("({}) -> ({}){}", inputs, fmt::join(parts, ", "),
             nest_.flat ? std::string() : fmt::format(", {} columns", nest_.columns));
        if (nest_.epilogue) line("of each block of sums of a contraction, in0:");
    }

    std::string place(const Access& access) const {
        if (nest_.flat) return access.columns ? "[c]" : "[0]";
        if (access.rows && access.columns) return fmt::format("[{}, c]", row_of(access));
        if (access.rows) return fmt::format("[{}]", row_of(access));
        return access.columns ? "[c]" : "[0]";
    }

    void write(int index) {
        const Step& now = step(index);
        const std::string type =
            now.dtype == DType::f32 ? std::string() : fmt::format(": {}", name_of(now.dtype));
        std::string value;
        if (now.op == "load")
            value = fmt::format("in{}{}", now.operand, place(now.access));
        else if (now.op == "constant")
            value = fmt::format("{}", now.constant);
        else if (now.op == "iota")
            value = now.access.columns ? "c" : row_of(now.access);
        else
            value = fmt::format("{}({})", now.op, names(now.arguments));
        line("v{}{} = {}", index, type, value);
    }

    static std::string names(const std::vector<int>& values) {
        std::vector<std::string> parts;
        for (int value : values) parts.push_back(fmt::format("v{}", value));
        return fmt::format("{}", fmt::join(parts, ", "));
    }

    void write(const Walk& walk) {
        if (!nest_.flat) {
            line("for each column c:");
            indent_ += 2;
        }
        for (const Keep& keep : walk.reread) line("v{} = scratch{}[c]", keep.value, keep.row);
        for (int index : walk.steps) write(index);
        for (const Keep& keep : walk.kept) line("scratch{}[c] = v{}", keep.row, keep.value);
        for (const Store& store : walk.stores)
            line("out{}{} = v{}", store.output, nest_.flat ? "[c]" : "[r, c]", store.value);
        for (const Reduction& reduction : walk.reductions)
            line("v{} {} v{}", reduction.result,
                 reduction.of_numbers ? "larger="
                 : reduction.maximum  ? "max="
                                      : "+=",
                 reduction.value);
        for (const RowSum& sum : walk.sums) line("out{}[c] += v{}", sum.output, sum.value);
        if (!nest_.flat) indent_ -= 2;
        for (int index : walk.row_steps) write(index);
        for (const Store& store : walk.row_stores) line("out{}[r] = v{}", store.output, store.value);
        for (const RowSum& sum : walk.row_sums) line("out{} += v{}", sum.output, sum.value);
    }

    const LoopNest& nest_;
    std::string text_;
    int indent_ = 0;
};

}  // namespace

std::string pseudo_code(const LoopNest& nest) { return Writer(nest).run(); }

}  // namespace mantissa::codegen
