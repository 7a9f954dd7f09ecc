// A module of PTX laid out: where its variables, parameters and registers lie, and its code one function
// after the other.
#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/whole_units.h"
#include "tests/emulated_gpu/availability.h"
#include "tests/emulated_gpu/decoder.h"
#include "tests/emulated_gpu/run_warp.h"

namespace mantissa::inline v0::cuda::ptx {

namespace {

/// The emulated driver is CUDA 12.8's: PTX 8.7.
constexpr int newest_version = 87;

std::int64_t aligned(std::int64_t offset, std::int64_t to) {
    return align_up(offset, std::max<std::int64_t>(to, 1));
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 10, version % 10); }

}  // namespace

Decoder::Decoder(const TextModule& module, const Architecture& gpu, const PlaceVariable& place_variable)
    : module_(module), gpu_(gpu), place_variable_(place_variable) {
    program_.target = module.target;
    program_.version = module.version;
    program_.lines = module.lines;
}

Program Decoder::whole() {
    check_target();
    place_module_variables();
    for (const TextFunction& text : module_.functions)
        if (text.has_body) function(text);
    // Local memory is one area: functions' parts lie behind each other, a kernel's behind theirs.
    for (auto& [name, kernel] : program_.kernels) {
        kernel.local = std::max(kernel.local, aligned(function_local_bytes_, 16));
        kernel.adds_to_global = kernel.adds_to_global || functions_add_;
    }
    return std::move(program_);
}

void Decoder::check_target() {
    if (const std::string why = target_refusal(module_.target, gpu_); !why.empty()) throw TextError{0, why};
    if (module_.version > newest_version)
        throw TextError{0, fmt::format("PTX {} is newer than this driver, which knows {}",
                                       version_text(module_.version), version_text(newest_version))};
    static const std::map<std::string, int> first_versions{{"sm_80", 70}, {"sm_86", 71},  {"sm_89", 78},
                                                           {"sm_90", 78}, {"sm_90a", 80}, {"sm_100", 86}};
    if (const auto found = first_versions.find(module_.target);
        found != first_versions.end() && module_.version < found->second)
        throw TextError{0, fmt::format("the target {} needs PTX {}, and .version is {}", module_.target,
                                       version_text(found->second), version_text(module_.version))};
}

void Decoder::place_module_variables() {
    for (const Variable& variable : module_.variables) {
        if (variable.space == Space::shared) {
            module_shared_bytes_ = aligned(module_shared_bytes_, variable.align);
            module_symbols_[variable.name] = {
                Space::shared, static_cast<std::uint64_t>(module_shared_bytes_), variable.size, {}};
            module_shared_bytes_ += variable.size;
        } else if (variable.space == Space::global || variable.space == Space::constant) {
            module_symbols_[variable.name] = {variable.space, place_variable_(variable), variable.size, {}};
        } else {
            throw TextError{variable.line,
                            fmt::format("the variable {} has no place in a module", variable.name)};
        }
    }
}

void Decoder::place_kernel_parameters(const TextFunction& text, Kernel& kernel) {
    for (const Variable& one : text.parameters) {
        kernel.parameter_bytes = aligned(kernel.parameter_bytes, one.align);
        kernel.parameters.push_back({one.name, kernel.parameter_bytes, one.size});
        symbols_[one.name] = {Space::param, static_cast<std::uint64_t>(kernel.parameter_bytes), one.size, {}};
        kernel.parameter_bytes += one.size;
    }
    for (int i = 0; i < 3; ++i) kernel.required_threads[i] = text.required_threads[i];
    if (text.max_threads[0])
        kernel.max_threads = text.max_threads[0] * text.max_threads[1] * text.max_threads[2];
}

void Decoder::place_function_parameters(const TextFunction& text, CalledFunction& made) {
    made.returns_to = add_register(4);
    const auto place = [&](const std::vector<Variable>& list, std::vector<Place>& places,
                           std::vector<std::int64_t>& bytes) {
        for (const Variable& one : list) {
            Place at;
            if (one.space == Space::reg) {
                at = registers_.at(one.name);
            } else {
                place_variable(one, nullptr);
                at = symbols_.at(one.name).own;
            }
            places.push_back(at);
            bytes.push_back(one.size);
        }
    };
    place(text.parameters, made.parameters, made.parameter_bytes);
    place(text.results, made.results, made.result_bytes);
}

/// A variable of a function: shared, local, or a parameter that it hands on.
void Decoder::place_variable(const Variable& variable, Kernel* kernel) {
    Symbol made{variable.space, 0, variable.size, {}};
    if (variable.space == Space::shared) {
        if (!kernel) throw TextError{variable.line, "shared variables of functions are not emulated"};
        kernel->static_shared = aligned(kernel->static_shared, variable.align);
        made.address = static_cast<std::uint64_t>(kernel->static_shared);
        kernel->static_shared += variable.size;
    } else if (variable.space == Space::local) {
        std::int64_t& bytes = kernel ? local_bytes_ : function_local_bytes_;
        bytes = aligned(bytes, variable.align);
        made.address = static_cast<std::uint64_t>(bytes);
        bytes += variable.size;
    } else if (variable.space == Space::param) {
        made.own = {static_cast<std::uint32_t>(program_.register_bytes), Place::registers, 0};
        program_.register_bytes += aligned(variable.size * warp_lanes, 64);
    } else {
        made.address = place_variable_(variable);
    }
    symbols_[variable.name] = made;
}

void Decoder::function(const TextFunction& text) {
    function_ = &text;
    symbols_ = module_symbols_;
    registers_.clear();
    branches_.clear();
    branch_tables_.clear();
    starts_.clear();
    const auto first = static_cast<std::uint32_t>(program_.code.size());
    int words = 0;
    for (const auto& [name, type] : text.registers) {
        const int bytes = bytes_of_type(type);
        if (bytes < 0 || bytes > 8)
            throw TextError{text.line, fmt::format("registers of type {} are not emulated", type)};
        registers_[name] = add_register(bytes);
        words += bytes == 8 ? 2 : bytes == 0 ? 0 : 1;
    }
    if (text.entry) {
        kernel_ = &program_.kernels[text.name];
        kernel_->name = text.name;
        kernel_->first = first;
        kernel_->registers = words;
        kernel_->static_shared = module_shared_bytes_;
        local_bytes_ = aligned(function_local_bytes_, 16);
        place_kernel_parameters(text, *kernel_);
    } else {
        kernel_ = nullptr;
        CalledFunction& made = program_.functions[text.name];
        made.first = first;
        place_function_parameters(text, made);
    }
    for (const Variable& variable : text.variables) place_variable(variable, kernel_);
    if (kernel_) finish_shared(text, *kernel_);
    for (const Statement& one : text.statements) {
        starts_.push_back(static_cast<std::uint32_t>(program_.code.size()));
        statement(one);
    }
    starts_.push_back(static_cast<std::uint32_t>(program_.code.size()));
    // A body returns at its end.
    Statement end;
    end.line = text.statements.empty() ? text.line : text.statements.back().line;
    end.op = {"ret"};
    statement(end);
    const auto target = [&](const std::string& label) {
        const auto found = text.labels.find(label);
        if (found == text.labels.end())
            throw TextError{text.line, fmt::format("there is no label {}", label)};
        return starts_[static_cast<std::size_t>(found->second)];
    };
    for (const auto& [at, label] : branches_) program_.code[at].target = target(label);
    for (const auto& [at, labels] : branch_tables_)
        for (const std::string& label : labels) program_.code[at].targets.push_back(target(label));
}

/// Dynamic shared memory begins where the static ends.
void Decoder::finish_shared(const TextFunction& text, Kernel& kernel) {
    kernel.static_shared = aligned(kernel.static_shared, 16);
    for (const auto* list : {&module_.variables, &text.variables})
        for (const Variable& one : *list)
            if (one.space == Space::shared && one.size == 0)
                symbols_[one.name].address = static_cast<std::uint64_t>(kernel.static_shared);
    kernel.local = aligned(local_bytes_, 16);
}

void Decoder::check_available(const Statement& text) const {
    const Needs needs = needs_of(text.op);
    const bool own_target = module_.target.ends_with("a");
    const int target = std::atoi(module_.target.c_str() + 3);
    if (needs.architecture > target || (needs.own && (!own_target || target != needs.architecture)))
        refuse(fmt::format("the instruction needs sm_{}{}, and .target is {}", needs.architecture,
                           needs.own ? "a" : "", module_.target));
    if (needs.version > module_.version)
        refuse(fmt::format("the instruction needs PTX {}, and .version is {}", version_text(needs.version),
                           version_text(module_.version)));
}

void Decoder::statement(const Statement& text) {
    now_ = &text;
    check_available(text);
    const std::size_t first = program_.code.size();
    if (!memory() && !control() && !across_lanes() && !warpgroup() && !arithmetic())
        refuse(fmt::format("'{}' is not emulated", fmt::join(text.op, ".")));
    if (text.guard.empty()) return;
    for (std::size_t i = first; i < program_.code.size(); ++i) {
        program_.code[i].guard = predicate(text.guard);
        program_.code[i].guard_negated = text.guard_negated;
    }
}

Program decode(const TextModule& module, const Architecture& gpu, const PlaceVariable& place_variable) {
    return Decoder(module, gpu, place_variable).whole();
}

}  // namespace mantissa::cuda::ptx
