#include "mantissa/codegen/llvm/ptx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <sstream>

#include "mantissa/base/error.h"

namespace mantissa::inline v0::codegen {

namespace {

/// The architecture: its first PTX. Later drivers take any earlier one.
const std::map<std::string, std::string>& versions() {
    static const std::map<std::string, std::string> all{{"sm_80", "+ptx70"},
                                                        {"sm_86", "+ptx71"},
                                                        {"sm_89", "+ptx78"},
                                                        {"sm_90", "+ptx78"},
                                                        {"sm_90a", "+ptx80"}};
    return all;
}

std::string parameters_of(const LoopNest& nest, const NvptxTarget& target) {
    if (target.parts > 0)
        return fmt::format("{} parts of first block, {} operands, {} outputs, elements; elements a block",
                           target.parts, nest.inputs.size(), nest.outputs.size());
    std::string text;
    for (std::size_t i = 0; i < nest.inputs.size(); ++i) text += fmt::format("in{}, ", i);
    for (std::size_t i = 0; i < nest.outputs.size(); ++i) text += fmt::format("out{}, ", i);
    return text + (nest.flat ? "elements, elements a block, " : "rows, rows a block, ") +
           "partial sums, scratch";
}

}  // namespace

std::vector<std::string> nvptx_architectures() {
    std::vector<std::string> names;
    for (const auto& [name, version] : versions()) names.push_back(name);
    return names;
}

void require_known(const NvptxTarget& target) {
    if (!versions().contains(target.architecture))
        throw UserError(fmt::format("no code can be made for '{}'; known are {}", target.architecture,
                                    fmt::join(nvptx_architectures(), ", ")));
}

std::string ptx_version(const std::string& architecture) { return versions().at(architecture); }

std::string ptx_header(const FusedKernel& kernel, const NvptxTarget& target) {
    std::string text = fmt::format(
        "// {} for {}.\n"
        "// Blocks of {} threads, each block the next {}. Parameters: {}.\n"
        "// FP32 numbers of each block: {} of partial sums, which start at zero; {} of scratch.\n//\n",
        kernel.name, target.architecture, target.threads, kernel.nest.flat ? "elements" : "rows",
        parameters_of(kernel.nest, target), kernel.nest.partial_sums, global_scratch_floats(kernel.nest));
    std::istringstream lines(kernel.text);
    for (std::string line; std::getline(lines, line);) text += "// " + line + "\n";
    return text;
}

}  // namespace mantissa::codegen
