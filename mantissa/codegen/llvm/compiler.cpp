#include "mantissa/codegen/compiler.h"

#include <fmt/format.h>
#include <llvm/ExecutionEngine/Orc/ExecutionUtils.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/Support/MemoryBuffer.h>

#include <map>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/codegen/llvm/machine.h"
#include "mantissa/codegen/llvm/ptx.h"

namespace mantissa::inline v0::codegen {

namespace {

/// The value, or an InternalError with LLVM's words.
template <class T>
T take(llvm::Expected<T> value) {
    if (!value) throw InternalError("LLVM: " + llvm::toString(value.takeError()));
    return std::move(*value);
}

void require(llvm::Error error) {
    if (error) throw InternalError("LLVM: " + llvm::toString(std::move(error)));
}

}  // namespace

struct Compiler::State {
    CodeTarget target;
    std::map<std::string, std::shared_ptr<FusedKernel>> by_text;
    std::vector<std::shared_ptr<FusedKernel>> in_order;
    std::size_t compiled = 0;                        // of in_order
    std::vector<std::unique_ptr<Machine>> machines;  // one a thread, made when first used
    std::unique_ptr<llvm::orc::LLJIT> jit;

    llvm::orc::LLJIT& linker() {
        if (!jit) {
            jit = take(llvm::orc::LLJITBuilder().create());
            // Plain x86-64 has no FMA: there the generated code calls the C library's.
            jit->getMainJITDylib().addGenerator(
                take(llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(
                    jit->getDataLayout().getGlobalPrefix())));
        }
        return *jit;
    }
};

Compiler::Compiler(CodeTarget target) : state_(std::make_unique<State>()) {
    if (const auto* gpu = std::get_if<NvptxTarget>(&target)) require_known(*gpu);
    state_->target = std::move(target);
}

Compiler::~Compiler() = default;

std::string Compiler::refusal() { return ""; }

std::shared_ptr<const FusedKernel> Compiler::add(const Graph& body) {
    LoopNest nest = lower(body);
    std::string text = pseudo_code(nest);
    const auto [entry, is_new] = state_->by_text.try_emplace(text);
    if (is_new) {
        entry->second = std::make_shared<FusedKernel>(
            FusedKernel{.name = fmt::format("fused_{}", state_->in_order.size()),
                        .nest = std::move(nest),
                        .text = std::move(text)});
        state_->in_order.push_back(entry->second);
    }
    return entry->second;
}

void Compiler::compile_pending(ThreadPool& pool) {
    const std::size_t first = state_->compiled, count = state_->in_order.size() - first;
    if (count == 0) return;
    check(std::holds_alternative<HostFeatures>(state_->target), "only the host's code is run");
    state_->machines.resize(static_cast<std::size_t>(pool.threads()));
    std::vector<std::unique_ptr<llvm::MemoryBuffer>> objects(count);
    pool.for_each_block(static_cast<std::int64_t>(count), [&](std::int64_t block, int worker) {
        const Stopwatch watch;
        std::unique_ptr<Machine>& machine = state_->machines[static_cast<std::size_t>(worker)];
        if (!machine) machine = std::make_unique<Machine>(state_->target);
        const auto index = static_cast<std::size_t>(block);
        FusedKernel& kernel = *state_->in_order[first + index];
        objects[index] = machine->compile(kernel);
        kernel.milliseconds = watch.milliseconds();
    });
    for (std::unique_ptr<llvm::MemoryBuffer>& object : objects)
        require(state_->linker().addObjectFile(std::move(object)));
    for (std::size_t i = first; i < state_->in_order.size(); ++i) {
        FusedKernel& kernel = *state_->in_order[i];
        kernel.function = take(state_->linker().lookup(kernel.name)).toPtr<FusedFunction>();
    }
    state_->compiled = state_->in_order.size();
}

std::vector<std::shared_ptr<const FusedKernel>> Compiler::kernels() const {
    return {state_->in_order.begin(), state_->in_order.end()};
}

Listing Compiler::list(const FusedKernel& kernel) const { return Machine(state_->target).list(kernel); }

}  // namespace mantissa::codegen
