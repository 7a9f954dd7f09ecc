#include "mantissa/codegen/compiler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm-c/Core.h>
#include <llvm/ExecutionEngine/Orc/ExecutionUtils.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/Support/MemoryBuffer.h>

#include <atomic>
#include <map>
#include <optional>
#include <span>

#include "mantissa/base/checksum.h"
#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
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

/// Requests to the compiler, each once, and how much of them is compiled.
template <class Kernel>
struct KernelList {
    std::map<std::string, std::shared_ptr<Kernel>> by_text;
    std::vector<std::shared_ptr<Kernel>> in_order;
    std::size_t compiled = 0;  // of in_order

    std::size_t pending() const { return in_order.size() - compiled; }
    /// The kernel of that text, and whether it is new.
    std::pair<std::shared_ptr<Kernel>&, bool> find(const std::string& text) {
        const auto [entry, is_new] = by_text.try_emplace(text);
        return {entry->second, is_new};
    }
};

struct Compiler::State {
    CodeTarget target;
    KernelFolder folder;
    std::atomic<std::int64_t> found = 0;
    KernelList<FusedKernel> fused;
    KernelList<ScoreKernel> scores;
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
    void find_functions(KernelList<Kernel>& list) {
        for (; list.compiled < list.in_order.size(); ++list.compiled) {
            Kernel& kernel = *list.in_order[list.compiled];
            kernel.function =
                take(linker().lookup(entry_of(kernel))).template toPtr<decltype(kernel.function)>();
        }
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
    std::string text = pseudo_code(nest);
    const auto [kernel, is_new] = state_->fused.find(text);
    if (is_new) {
        kernel = std::make_shared<FusedKernel>(
            FusedKernel{.name = fmt::format("fused_{}", state_->fused.in_order.size()),
                        .nest = std::move(nest),
                        .text = std::move(text)});
        state_->fused.in_order.push_back(kernel);
    }
    return kernel;
}

std::shared_ptr<const ScoreKernel> Compiler::add(ScoreCode code) {
    std::string of_code = text(code);
    const auto [kernel, is_new] = state_->scores.find(of_code);
    if (is_new) {
        kernel = std::make_shared<ScoreKernel>(
            ScoreKernel{.name = fmt::format("score_{}", state_->scores.in_order.size()),
                        .code = std::move(code),
                        .text = std::move(of_code)});
        state_->scores.in_order.push_back(kernel);
    }
    return kernel;
}

void Compiler::compile_pending(ThreadPool& pool) {
    KernelList<FusedKernel>& fused = state_->fused;
    KernelList<ScoreKernel>& scores = state_->scores;
    const std::size_t count = fused.pending() + scores.pending();
    if (count == 0) return;
    check(std::holds_alternative<HostFeatures>(state_->target), "only the host's code is run");
    state_->machines.resize(pool.threads());
    std::vector<std::unique_ptr<llvm::MemoryBuffer>> objects(count);
    pool.for_each_block(static_cast<std::int64_t>(count), [&](std::int64_t block, int worker) {
        const auto index = static_cast<std::size_t>(block);
        objects[index] =
            index < fused.pending()
                ? state_->compile(*fused.in_order[fused.compiled + index], worker)
                : state_->compile(*scores.in_order[scores.compiled + index - fused.pending()], worker);
    });
    for (std::unique_ptr<llvm::MemoryBuffer>& object : objects)
        require(state_->linker().addObjectFile(std::move(object)));
    state_->find_functions(fused);
    state_->find_functions(scores);
}

std::int64_t Compiler::found() const { return state_->found; }

std::vector<std::shared_ptr<const FusedKernel>> Compiler::kernels() const {
    return {state_->fused.in_order.begin(), state_->fused.in_order.end()};
}

std::vector<std::shared_ptr<const ScoreKernel>> Compiler::score_kernels() const {
    return {state_->scores.in_order.begin(), state_->scores.in_order.end()};
}

Listing Compiler::list(const FusedKernel& kernel) const { return Machine(state_->target).list(kernel); }
Listing Compiler::list(const ScoreKernel& kernel) const { return Machine(state_->target).list(kernel); }

}  // namespace mantissa::codegen
