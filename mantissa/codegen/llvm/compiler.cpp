#include "mantissa/codegen/compiler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm-c/Core.h>
#include <llvm/ExecutionEngine/Orc/ExecutionUtils.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/Support/MemoryBuffer.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <span>

#include "mantissa/base/checksum.h"
#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/codegen/kernel_requests.h"
#include "mantissa/codegen/llvm/machine.h"
#include "mantissa/codegen/llvm/ptx.h"
#include "mantissa/graph/graph.h"

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

/// The host's instructions: code for them runs on no other kind of processor.
std::string text_of(const CodeTarget& target) {
    return fmt::format("{}", fmt::join(std::get<HostFeatures>(target).bits, " "));
}

/// The name of a kernel's function, by the kernel alone: kept code is linked beside any other.
template <class Kernel>
std::string entry_of(const Kernel& kernel) {
    const std::string kind = kernel.name.substr(0, kernel.name.find('_'));
    return fmt::format("{}_{}", kind, checksum_text(checksum_of(std::as_bytes(std::span(kernel.text)))));
}

}  // namespace

struct Compiler::State {
    CodeTarget target;
    KernelFolder folder;
    std::atomic<std::int64_t> found = 0;
    KernelRequests<FusedKernel> fused;
    KernelRequests<ScoreKernel> scores;
    std::vector<std::unique_ptr<Machine>> machines;  // one a thread, made when first used
    std::unique_ptr<llvm::orc::LLJIT> jit;

    template <class Kernel>
    std::unique_ptr<llvm::MemoryBuffer> compile(Kernel& kernel, int worker) {
        const Stopwatch watch;
        auto object = found_or_made(kernel, worker);
        kernel.milliseconds = watch.milliseconds();
        return object;
    }

    template <class Kernel>
    std::unique_ptr<llvm::MemoryBuffer> found_or_made(const Kernel& kernel, int worker) {
        const std::string entry = entry_of(kernel);
        const std::string key = fmt::format("{} {}\n{}", text_of(target), entry, kernel.text);
        if (const std::optional<Listing> kept = folder.find(key)) {
            ++found;
            return llvm::MemoryBuffer::getMemBufferCopy(kept->assembly, entry);
        }
        std::unique_ptr<Machine>& machine = machines[worker];
        if (!machine) machine = std::make_unique<Machine>(target);
        auto object = machine->compile(kernel, entry);
        folder.keep(key, {.ir = "", .assembly = object->getBuffer().str()});
        return object;
    }

    template <class Kernel>
    void find_functions(const std::vector<std::shared_ptr<Kernel>>& kernels) {
        for (const std::shared_ptr<Kernel>& kernel : kernels)
            kernel->function =
                take(linker().lookup(entry_of(*kernel))).template toPtr<decltype(kernel->function)>();
    }

    template <class Kernel>
    static std::vector<std::shared_ptr<const Kernel>> all(const KernelRequests<Kernel>& requests) {
        std::vector<std::shared_ptr<const Kernel>> kernels(requests.made().begin(), requests.made().end());
        std::ranges::move(requests.pending(), std::back_inserter(kernels));
        return kernels;
    }

    llvm::orc::LLJIT& linker() {
        if (!jit) {
            initialize_llvm();
            jit = take(llvm::orc::LLJITBuilder().create());
            // Plain x86-64 has no FMA: there the generated code calls the C library's.
            jit->getMainJITDylib().addGenerator(
                take(llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(
                    jit->getDataLayout().getGlobalPrefix())));
        }
        return *jit;
    }
};

Compiler::Compiler(CodeTarget target, KernelFolder folder) : state_(std::make_unique<State>()) {
    state_->folder = std::move(folder);
    if (const auto* gpu = std::get_if<NvptxTarget>(&target)) require_known(*gpu);
    state_->target = std::move(target);
}

Compiler::~Compiler() = default;

std::string Compiler::refusal() { return ""; }

std::string Compiler::version() {
    unsigned major = 0, minor = 0, patch = 0;
    LLVMGetVersion(&major, &minor, &patch);
    return fmt::format("LLVM {}.{}.{}", major, minor, patch);
}

std::shared_ptr<const FusedKernel> Compiler::add(LoopNest nest) {
    const std::string text = pseudo_code(nest);
    return state_->fused.find(text, [&] {
        return FusedKernel{
            .name = fmt::format("fused_{}", state_->fused.count()), .nest = std::move(nest), .text = text};
    });
}

std::shared_ptr<const ScoreKernel> Compiler::add(ScoreCode code) {
    const std::string of_code = text(code);
    return state_->scores.find(of_code, [&] {
        return ScoreKernel{.name = fmt::format("score_{}", state_->scores.count()),
                           .code = std::move(code),
                           .text = of_code};
    });
}

void Compiler::compile_pending(ThreadPool& pool) {
    const auto fused = state_->fused.take_pending();
    const auto scores = state_->scores.take_pending();
    const std::size_t count = fused.size() + scores.size();
    if (count == 0) return;
    check(std::holds_alternative<HostFeatures>(state_->target), "only the host's code is run");
    state_->machines.resize(pool.threads());
    std::vector<std::unique_ptr<llvm::MemoryBuffer>> objects(count);
    pool.for_each_block(static_cast<std::int64_t>(count), [&](std::int64_t block, int worker) {
        const auto index = static_cast<std::size_t>(block);
        objects[index] = index < fused.size() ? state_->compile(*fused[index], worker)
                                              : state_->compile(*scores[index - fused.size()], worker);
    });
    for (std::unique_ptr<llvm::MemoryBuffer>& object : objects)
        require(state_->linker().addObjectFile(std::move(object)));
    state_->find_functions(fused);
    state_->find_functions(scores);
}

std::int64_t Compiler::found() const { return state_->found; }

std::vector<std::shared_ptr<const FusedKernel>> Compiler::kernels() const {
    return State::all(state_->fused);
}

std::vector<std::shared_ptr<const ScoreKernel>> Compiler::score_kernels() const {
    return State::all(state_->scores);
}

Listing Compiler::list(const FusedKernel& kernel) const { return Machine(state_->target).list(kernel); }
Listing Compiler::list(const ScoreKernel& kernel) const { return Machine(state_->target).list(kernel); }

}  // namespace mantissa::codegen
