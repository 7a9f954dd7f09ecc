#include "mantissa/codegen/llvm/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
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

#include <functional>

#include "mantissa/base/error.h"
#include "mantissa/codegen/llvm/emit.h"
#include "mantissa/codegen/llvm/ptx.h"

namespace mantissa::inline v0::codegen {

namespace {

/// As LLVM names a processor.
struct Processor {
    std::string triple;
    std::string name;
    std::string features;
};

Processor processor_of(const HostFeatures& host) {
    std::string bits;
    for (const std::string& bit : host.bits) bits += (bits.empty() ? "+" : ",+") + bit;
    // The plainest one: what it can do is said by the bits alone.
    return {llvm::sys::getProcessTriple(), "x86-64", bits};
}

Processor processor_of(const NvptxTarget& gpu) {
    return {"nvptx64-nvidia-cuda", gpu.architecture, ptx_version(gpu.architecture)};
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

}  // namespace

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

struct Machine::State {
    llvm::LLVMContext context;
    CodeTarget code_target;
    std::unique_ptr<llvm::TargetMachine> target;

    std::unique_ptr<llvm::Module> make_module(const FusedKernel& kernel, const std::string& entry) {
        return make_module(entry,
                           [&](llvm::Module& module) { emit(module, entry, kernel.nest, code_target); });
    }

    std::unique_ptr<llvm::Module> make_module(const ScoreKernel& kernel, const std::string& entry) {
        return make_module(entry, [&](llvm::Module& module) {
            emit(module, entry, kernel.code, std::get<HostFeatures>(code_target));
        });
    }

    std::unique_ptr<llvm::Module> make_module(const std::string& name,
                                              const std::function<void(llvm::Module&)>& emit_into) {
        auto module = std::make_unique<llvm::Module>(name, context);
        module->setTargetTriple(target->getTargetTriple().str());
        module->setDataLayout(target->createDataLayout());
        emit_into(*module);
        std::string error;
        llvm::raw_string_ostream errors(error);
        if (llvm::verifyModule(*module, &errors))
            throw InternalError(fmt::format("code of {} is not valid: {}", name, error));
        improve(*module);
        return module;
    }

    /// Three passes and no more: what is emitted is in SSA form with explicit lanes, so nothing else finds
    /// anything to do, and the whole pipeline takes three times as long. A GPU's kernels have variables
    /// besides, which become registers first.
    void improve(llvm::Module& module) const {
        llvm::LoopAnalysisManager loops;
        llvm::FunctionAnalysisManager functions;
        llvm::CGSCCAnalysisManager calls;
        llvm::ModuleAnalysisManager modules;
        llvm::PassBuilder builder(target.get());
        builder.registerModuleAnalyses(modules);
        builder.registerCGSCCAnalyses(calls);
        builder.registerFunctionAnalyses(functions);
        builder.registerLoopAnalyses(loops);
        builder.crossRegisterProxies(loops, functions, calls, modules);
        llvm::FunctionPassManager passes;
        if (std::holds_alternative<NvptxTarget>(code_target)) passes.addPass(llvm::PromotePass());
        passes.addPass(llvm::EarlyCSEPass());
        passes.addPass(llvm::InstCombinePass());
        passes.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()),
                                                             /*UseMemorySSA=*/true));
        for (llvm::Function& function : module)
            if (!function.isDeclaration()) passes.run(function, functions);
    }

    Listing list(llvm::Module& module) const {
        Listing listing;
        llvm::raw_string_ostream(listing.ir) << module;
        listing.assembly = write(module, llvm::CodeGenFileType::AssemblyFile)->getBuffer().str();
        return listing;
    }

    std::unique_ptr<llvm::MemoryBuffer> write(llvm::Module& module, llvm::CodeGenFileType type) const {
        llvm::SmallVector<char, 0> bytes;
        llvm::raw_svector_ostream stream(bytes);
        llvm::legacy::PassManager passes;
        if (target->addPassesToEmitFile(passes, stream, nullptr, type))
            throw InternalError("LLVM cannot write this kind of file for " + target->getTargetTriple().str());
        passes.run(module);
        return std::make_unique<llvm::SmallVectorMemoryBuffer>(std::move(bytes), module.getName(), false);
    }
};

Machine::Machine(const CodeTarget& target) : state_(std::make_unique<State>()) {
    state_->code_target = target;
    state_->target = make_target_machine(target);
}

Machine::~Machine() = default;

std::unique_ptr<llvm::MemoryBuffer> Machine::compile(const FusedKernel& kernel, const std::string& entry) {
    const auto module = state_->make_module(kernel, entry);
    return state_->write(*module, llvm::CodeGenFileType::ObjectFile);
}

Listing Machine::list(const FusedKernel& kernel) {
    Listing listing = state_->list(*state_->make_module(kernel, kernel.name));
    if (const auto* gpu = std::get_if<NvptxTarget>(&state_->code_target))
        listing.assembly.insert(0, ptx_header(kernel, *gpu));
    return listing;
}

std::unique_ptr<llvm::MemoryBuffer> Machine::compile(const ScoreKernel& kernel, const std::string& entry) {
    const auto module = state_->make_module(kernel, entry);
    return state_->write(*module, llvm::CodeGenFileType::ObjectFile);
}

Listing Machine::list(const ScoreKernel& kernel) {
    return state_->list(*state_->make_module(kernel, kernel.name));
}

Listing Machine::list(const GridKernel& kernel) {
    return state_->list(
        *state_->make_module(kernel.name, [&](llvm::Module& module) { emit(module, kernel); }));
}

Listing compile(const GridKernel& kernel, const NvptxTarget& target) { return Machine(target).list(kernel); }

}  // namespace mantissa::codegen
