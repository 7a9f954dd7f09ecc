#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm-c/Core.h>
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/ExecutionEngine/Orc/ExecutionUtils.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Utils/Mem2Reg.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>

#include "mantissa/base/checksum.h"
#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/codegen/compiler.h"
#include "mantissa/codegen/grid_kernel.h"
#include "mantissa/codegen/kernel_requests.h"
#include "mantissa/codegen/llvm/emit.h"
#include "mantissa/graph/graph.h"

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

/// Throws UserError unless the architecture is known.
void require_known(const NvptxTarget& target) {
    if (!versions().contains(target.architecture))
        throw UserError(fmt::format("no code can be made for '{}'; known are {}", target.architecture,
                                    fmt::join(nvptx_architectures(), ", ")));
}

/// The version of PTX that the architecture came with, as LLVM's feature.
std::string ptx_version(const std::string& architecture) { return versions().at(architecture); }

/// Comments: the purpose of the code, its launch, and its pseudo-code.
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

/// As LLVM names a processor.
struct Processor {
    std::string triple;
    std::string name;
    std::string features;
};

Processor processor_of(const HostFeatures& host) {
    std::string bits;
    for (const std::string& bit : host.bits) bits += (bits.empty() ? "+" : ",+") + bit;
    // The plainest processor: its features are given by the bits alone.
    return {llvm::sys::getProcessTriple(), "x86-64", bits};
}

Processor processor_of(const NvptxTarget& gpu) {
    return {"nvptx64-nvidia-cuda", gpu.architecture, ptx_version(gpu.architecture)};
}

/// Tells LLVM which processors there are, before anything else is asked of it.
void initialize_llvm() {
    static const bool initialized = [] {
        llvm::InitializeNativeTarget();
        llvm::InitializeNativeTargetAsmPrinter();
        LLVMInitializeNVPTXTargetInfo();
        LLVMInitializeNVPTXTarget();
        LLVMInitializeNVPTXTargetMC();
        LLVMInitializeNVPTXAsmPrinter();
        return true;
    }();
    check(initialized, "LLVM knows the host");
}

std::unique_ptr<llvm::TargetMachine> make_target_machine(const CodeTarget& code_target) {
    initialize_llvm();
    const Processor processor =
        std::visit([](const auto& target) { return processor_of(target); }, code_target);
    std::string error;
    const llvm::Target* target = llvm::TargetRegistry::lookupTarget(processor.triple, error);
    if (!target) throw InternalError("LLVM: " + error);
    return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
        processor.triple, processor.name, processor.features, llvm::TargetOptions(), llvm::Reloc::PIC_,
        std::nullopt, llvm::CodeGenOptLevel::Default));
}

/// One thread's LLVM: a context and a target machine, from IR to an object file in memory.
class Machine {
  public:
    explicit Machine(const CodeTarget& target) : code_target_(target), target_(make_target_machine(target)) {}

    /// Emits, improves and assembles one kernel, for the host. Its function is called `entry`.
    template <class Kernel>
    std::unique_ptr<llvm::MemoryBuffer> compile(const Kernel& kernel, const std::string& entry) {
        return write(*make_module(kernel, entry), llvm::CodeGenFileType::ObjectFile);
    }

    template <class Kernel>
    Listing list(const Kernel& kernel) {
        const auto module = make_module(kernel, kernel.name);
        Listing listing;
        llvm::raw_string_ostream(listing.ir) << *module;
        listing.assembly = write(*module, llvm::CodeGenFileType::AssemblyFile)->getBuffer().str();
        return listing;
    }

  private:
    std::unique_ptr<llvm::Module> make_module(const FusedKernel& kernel, const std::string& entry) {
        return make_module(entry,
                           [&](llvm::Module& module) { emit(module, entry, kernel.nest, code_target_); });
    }
    std::unique_ptr<llvm::Module> make_module(const ScoreKernel& kernel, const std::string& entry) {
        return make_module(entry, [&](llvm::Module& module) {
            emit(module, entry, kernel.code, std::get<HostFeatures>(code_target_));
        });
    }
    std::unique_ptr<llvm::Module> make_module(const GridKernel& kernel, const std::string& entry) {
        return make_module(entry, [&](llvm::Module& module) { emit(module, kernel); });
    }

    std::unique_ptr<llvm::Module> make_module(const std::string& name,
                                              const std::function<void(llvm::Module&)>& emit_into) {
        auto module = std::make_unique<llvm::Module>(name, context_);
        module->setTargetTriple(target_->getTargetTriple().str());
        module->setDataLayout(target_->createDataLayout());
        emit_into(*module);
        std::string error;
        llvm::raw_string_ostream errors(error);
        if (llvm::verifyModule(*module, &errors))
            throw InternalError(fmt::format("code of {} is not valid: {}", name, error));
        improve(*module);
        return module;
    }

    /// Three passes and no more: emitted code is in SSA form with explicit lanes, so nothing else finds
    /// anything to do, and the whole pipeline takes three times as long. A GPU's kernels have variables
    /// besides, which become registers first.
    void improve(llvm::Module& module) const {
        llvm::LoopAnalysisManager loops;
        llvm::FunctionAnalysisManager functions;
        llvm::CGSCCAnalysisManager calls;
        llvm::ModuleAnalysisManager modules;
        llvm::PassBuilder builder(target_.get());
        builder.registerModuleAnalyses(modules);
        builder.registerCGSCCAnalyses(calls);
        builder.registerFunctionAnalyses(functions);
        builder.registerLoopAnalyses(loops);
        builder.crossRegisterProxies(loops, functions, calls, modules);
        llvm::FunctionPassManager passes;
        if (std::holds_alternative<NvptxTarget>(code_target_)) passes.addPass(llvm::PromotePass());
        passes.addPass(llvm::EarlyCSEPass());
        passes.addPass(llvm::InstCombinePass());
        passes.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()),
                                                             /*UseMemorySSA=*/true));
        for (llvm::Function& function : module)
            if (!function.isDeclaration()) passes.run(function, functions);
    }

    std::unique_ptr<llvm::MemoryBuffer> write(llvm::Module& module, llvm::CodeGenFileType type) const {
        llvm::SmallVector<char, 0> bytes;
        llvm::raw_svector_ostream stream(bytes);
        llvm::legacy::PassManager passes;
        if (target_->addPassesToEmitFile(passes, stream, nullptr, type))
            throw InternalError("LLVM cannot write this kind of file for " +
                                target_->getTargetTriple().str());
        passes.run(module);
        return std::make_unique<llvm::SmallVectorMemoryBuffer>(std::move(bytes), module.getName(), false);
    }

    llvm::LLVMContext context_;
    CodeTarget code_target_;
    std::unique_ptr<llvm::TargetMachine> target_;
};

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

std::vector<std::string> nvptx_architectures() {
    std::vector<std::string> names;
    for (const auto& [name, version] : versions()) names.push_back(name);
    return names;
}

Listing compile(const GridKernel& kernel, const NvptxTarget& target) { return Machine(target).list(kernel); }

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

Listing Compiler::list(const FusedKernel& kernel) const {
    Listing listing = Machine(state_->target).list(kernel);
    if (const auto* gpu = std::get_if<NvptxTarget>(&state_->target))
        listing.assembly.insert(0, ptx_header(kernel, *gpu));
    return listing;
}
Listing Compiler::list(const ScoreKernel& kernel) const { return Machine(state_->target).list(kernel); }

}  // namespace mantissa::codegen
