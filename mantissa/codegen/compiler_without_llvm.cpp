// A stand-in for the compiler in a build without LLVM: it says so.
#include "mantissa/base/error.h"
#include "mantissa/codegen/grid_kernel.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0::codegen {

struct Compiler::State {};

Compiler::Compiler(CodeTarget, KernelFolder) {}
Compiler::~Compiler() = default;

std::vector<std::string> nvptx_architectures() { return {}; }

std::string Compiler::refusal() {
    return "this build has no compiler for its kernels, so a step takes many times as long; build with "
           "-DMANTISSA_LLVM=ON and LLVM 19 installed";
}

std::string Compiler::version() { return ""; }

std::shared_ptr<const FusedKernel> Compiler::add(LoopNest) { throw InternalError(refusal()); }
std::shared_ptr<const ScoreKernel> Compiler::add(ScoreCode) { throw InternalError(refusal()); }
void Compiler::compile_pending(ThreadPool&) {}
std::int64_t Compiler::found() const { return 0; }
std::vector<std::shared_ptr<const FusedKernel>> Compiler::kernels() const { return {}; }
std::vector<std::shared_ptr<const ScoreKernel>> Compiler::score_kernels() const { return {}; }
Listing Compiler::list(const FusedKernel&) const { throw InternalError(refusal()); }
Listing Compiler::list(const ScoreKernel&) const { throw InternalError(refusal()); }
Listing compile(const GridKernel&, const NvptxTarget&) { throw InternalError(Compiler::refusal()); }

}  // namespace mantissa::codegen
