#include "tests/codegen/ptx_kernel.h"

#include <llvm/AsmParser/Parser.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/SourceMgr.h>

#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/base/float_environment.h"
#include "tests/codegen/ptx_threads.h"

namespace mantissa::testing {

namespace {

template <class T>
T take(llvm::Expected<T> value) {
    if (!value) throw InternalError("LLVM: " + llvm::toString(value.takeError()));
    return std::move(*value);
}

constexpr std::pair<const char*, const char*> replaced[] = {{"llvm.nvvm.read.ptx.sreg.tid.x", "ptx_thread"},
                                                            {"llvm.nvvm.read.ptx.sreg.ctaid.x", "ptx_block"},
                                                            {"llvm.nvvm.barrier0", "ptx_barrier"},
                                                            {"llvm.nvvm.shfl.sync.bfly.f32", "ptx_shuffle"}};

/// A function that reads the kernel's arguments from memory, as a launch gives them: an address of each.
void add_launcher(llvm::Module& module, llvm::Function& kernel) {
    llvm::IRBuilder<> b(module.getContext());
    auto* launcher = llvm::Function::Create(llvm::FunctionType::get(b.getVoidTy(), {b.getPtrTy()}, false),
                                            llvm::Function::ExternalLinkage, "launch", module);
    b.SetInsertPoint(llvm::BasicBlock::Create(b.getContext(), "entry", launcher));
    std::vector<llvm::Value*> arguments;
    for (const llvm::Argument& parameter : kernel.args()) {
        llvm::Value* place = b.CreateConstGEP1_64(b.getPtrTy(), launcher->getArg(0), parameter.getArgNo());
        arguments.push_back(b.CreateLoad(parameter.getType(), b.CreateLoad(b.getPtrTy(), place)));
    }
    b.CreateCall(&kernel, arguments);
    b.CreateRetVoid();
}

llvm::orc::ThreadSafeModule for_the_host(const std::string& ir, const std::string& name,
                                         const llvm::orc::LLJIT& jit) {
    auto context = std::make_unique<llvm::LLVMContext>();
    llvm::SMDiagnostic error;
    std::unique_ptr<llvm::Module> module = llvm::parseAssemblyString(ir, error, *context);
    if (!module) throw InternalError("LLVM: " + error.getMessage().str());
    module->setTargetTriple(jit.getTargetTriple().str());
    module->setDataLayout(jit.getDataLayout());
    for (const auto& [from, to] : replaced)
        if (llvm::Function* function = module->getFunction(from)) function->setName(to);
    for (const llvm::Function& function : *module)
        check(!function.getName().starts_with("llvm.nvvm."), "every instruction of the GPU is replaced");
    llvm::Function* kernel = module->getFunction(name);
    check(kernel != nullptr, "the kernel has the name it was given");
    kernel->setCallingConv(llvm::CallingConv::C);
    add_launcher(*module, *kernel);
    return {std::move(module), std::move(context)};
}

void define_calls(llvm::orc::LLJIT& jit) {
    llvm::orc::SymbolMap symbols;
    const auto add = [&](const char* name, auto* function) {
        symbols[jit.mangleAndIntern(name)] = {llvm::orc::ExecutorAddr::fromPtr(function),
                                              llvm::JITSymbolFlags::Exported};
    };
    add("ptx_thread", &ptx_thread);
    add("ptx_block", &ptx_block);
    add("ptx_barrier", &ptx_barrier);
    add("ptx_shuffle", &ptx_shuffle);
    if (llvm::Error error = jit.getMainJITDylib().define(llvm::orc::absoluteSymbols(symbols)))
        throw InternalError("LLVM: " + llvm::toString(std::move(error)));
}

}  // namespace

struct PtxKernel::State {
    codegen::NvptxTarget target;
    std::shared_ptr<const codegen::FusedKernel> kernel;
    std::unique_ptr<llvm::orc::LLJIT> jit;
    void (*function)(void* const*) = nullptr;
};

PtxKernel::PtxKernel(const Graph& body, const codegen::NvptxTarget& target)
    : state_(std::make_unique<State>()) {
    codegen::Compiler compiler(target);
    state_->target = target;
    state_->kernel = compiler.add(body);
    const codegen::Listing listing =
        compiler.list(*state_->kernel);  // first, since it makes LLVM know the host
    state_->jit = take(llvm::orc::LLJITBuilder().create());
    define_calls(*state_->jit);
    if (llvm::Error error =
            state_->jit->addIRModule(for_the_host(listing.ir, state_->kernel->name, *state_->jit)))
        throw InternalError("LLVM: " + llvm::toString(std::move(error)));
    state_->function = take(state_->jit->lookup("launch")).toPtr<void (*)(void* const*)>();
}

PtxKernel::~PtxKernel() = default;

const codegen::LoopNest& PtxKernel::nest() const { return state_->kernel->nest; }

std::vector<float> PtxKernel::launch(std::span<const std::byte* const> inputs,
                                     std::span<std::byte* const> outputs, const Rows& rows) const {
    const auto of_blocks = [&](std::int64_t floats, float value) {
        return std::vector<float>(static_cast<std::size_t>(rows.blocks() * floats), value);
    };
    std::vector<float> partial_sums = of_blocks(nest().partial_sums, 0);
    std::vector<float> scratch =
        of_blocks(codegen::scratch_floats(nest()), std::numeric_limits<float>::quiet_NaN());
    float *first_sum = partial_sums.data(), *first_scratch = scratch.data();
    Rows given = rows;
    std::vector<const void*> places;
    for (const std::byte* const& input : inputs) places.push_back(&input);
    for (std::byte* const& output : outputs) places.push_back(&output);
    for (const void* place :
         std::initializer_list<const void*>{&given.count, &given.per_block, &first_sum, &first_scratch})
        places.push_back(place);
    const FlushSubnormals as_gpu;
    run_blocks(rows.blocks(), state_->target.threads,
               [&] { state_->function(const_cast<void* const*>(places.data())); });
    return partial_sums;
}

}  // namespace mantissa::testing
