// The machines that a model is trained on, and the processes that train it together.
#pragma once

#include <memory>
#include <string>

namespace mantissa::inline v0 {

class Device;
class Ranks;

/// The CPU, with so many threads; 0: as many as the affinity mask, the CPU quota and OMP_NUM_THREADS allow.
/// One device for the whole program, made when it is first asked for. Uses the instruction set that
/// MANTISSA_ISA names, else the best that the CPU has. Throws UserError for a level that the CPU lacks, and
/// for a negative number of threads.
Device& cpu(int threads = 0);

/// An NVIDIA GPU: the first that CUDA_VISIBLE_DEVICES leaves, likewise. Throws UserError that names the
/// missing driver, cuBLASLt, version or compiler, and for another index, since a process has one.
Device& gpu(int index = 0);

struct RankOptions {
    double seconds = 300;  ///< ranks are waited for so long, here and in a step
    /// Processes of one machine that no launcher started meet under this name, which no others use. Each
    /// gives its number and the number of all.
    std::string name = {};
    int rank = 0, ranks = 1;
};

/// The processes that train one model together, *ranks*: started by `mpirun -n 4 program`, or srun
/// (docs/ranks.md), or meeting under a name. Where there are none, this process is the only one. To be made
/// before trainers, and to outlive them; an exception that leaves it behind ends the others.
class RankGroup {
  public:
    /// Connects. Throws UserError that names the missing library, and LostRank for a rank that does not come.
    explicit RankGroup(const RankOptions& options = {});
    ~RankGroup();
    RankGroup(const RankGroup&) = delete;
    RankGroup& operator=(const RankGroup&) = delete;

    int rank() const;
    int size() const;
    /// As TrainerOptions::ranks; null where this process is the only one.
    operator Ranks*() const;  // NOLINT(google-explicit-constructor)

    /// The devices of this rank, as above. Ranks of one host share its cores, unless threads are given, and
    /// have a GPU each. All ranks call the same function.
    Device& cpu(int threads = 0);
    Device& gpu();

  private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace mantissa
