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

#include "mantissa/base/error.h"
#include "mantissa/codegen/llvm/emit.h"

namespace mantissa::codegen {

namespace {

std::unique_ptr<llvm::TargetMachine> make_target_machine(const HostFeatures& features) {
    static const bool initialized = [] {
        llvm::InitializeNativeTarget();
        llvm::InitializeNativeTargetAsmPrinter();
        return true;
    }();
    check(initialized, "LLVM knows the host");
    const std::string triple = llvm::sys::getProcessTriple();
    std::string error;
    const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
    if (!target) throw InternalError("LLVM: " + error);
    std::string bits;
    for (const std::string& bit : features.bits) bits += (bits.empty() ? "+" : ",+") + bit;
    // The processor is the plainest one: what it can do is said by the bits alone.
    return std::unique_ptr<llvm::TargetMachine>(
        target->createTargetMachine(triple, "x86-64", bits, llvm::TargetOptions(), llvm::Reloc::PIC_,
                                    llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
}

}  // namespace

struct Machine::State {
    llvm::LLVMContext context;
    std::unique_ptr<llvm::TargetMachine> target;

    /// Three passes and no more: what is emitted is in SSA form with explicit lanes, so nothing else finds
    /// anything to do, and the whole pipeline takes three times as long.
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
        if (target->addPassesToEmitFile(passes, stream, nullptr, type))
            throw InternalError("LLVM cannot write this kind of file for the host");
        passes.run(module);
        return std::make_unique<llvm::SmallVectorMemoryBuffer>(std::move(bytes), module.getName(), false);
    }
};

Machine::Machine(const HostFeatures& features) : state_(std::make_unique<State>()) {
    state_->target = make_target_machine(features);
}

Machine::~Machine() = default;

std::unique_ptr<llvm::MemoryBuffer> Machine::compile(const FusedKernel& kernel, Listing* listing) {
    llvm::Module module(kernel.name, state_->context);
    module.setTargetTriple(state_->target->getTargetTriple().str());
    module.setDataLayout(state_->target->createDataLayout());
    emit(module, kernel.name, kernel.nest);
    std::string error;
    llvm::raw_string_ostream errors(error);
    if (llvm::verifyModule(module, &errors))
        throw InternalError(fmt::format("code of {} is not valid: {}", kernel.name, error));
    state_->improve(module);
    if (listing) {
        llvm::raw_string_ostream(listing->ir) << module;
        listing->assembly = state_->write(module, llvm::CodeGenFileType::AssemblyFile)->getBuffer().str();
        return nullptr;
    }
    return state_->write(module, llvm::CodeGenFileType::ObjectFile);
}

}  // namespace mantissa::codegen
