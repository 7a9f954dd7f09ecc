// Makes a function a kernel of CUDA, whatever it computes.
#pragma once

namespace llvm {
class Function;
}

namespace mantissa::inline v0::codegen {

/// Marks it for blocks of so many threads. Subnormals of FP32 are flushed, as on the CPU.
void make_gpu_kernel(llvm::Function& function, int threads);

}  // namespace mantissa::codegen
