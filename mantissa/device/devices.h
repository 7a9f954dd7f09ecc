// The machines that a model is trained on.
#pragma once

namespace mantissa::inline v0 {

class Device;

/// The CPU, with so many threads; 0: as many as the affinity mask, the CPU quota and OMP_NUM_THREADS allow.
/// One for the whole program, made when it is first asked for. Uses the instruction set that MANTISSA_ISA
/// names, else the best that the CPU has. Throws UserError for a level that the CPU lacks, and for a negative
/// number of threads.
Device& cpu(int threads = 0);

/// An NVIDIA GPU: the first that CUDA_VISIBLE_DEVICES leaves, likewise. Throws UserError that says what is
/// missing (the driver, cuBLASLt, a version, the compiler), and for another index, since a process has one.
Device& gpu(int index = 0);

}  // namespace mantissa
