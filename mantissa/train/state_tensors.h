// States as file formats see them: described, and read piece by piece from wherever they lie.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mantissa/formats/safetensors.h"
#include "mantissa/formats/safetensors_write.h"
#include "mantissa/ranks/ranks.h"
#include "mantissa/ranks/shard.h"
#include "mantissa/runtime/state_block.h"

namespace mantissa::inline v0 {

/// Whether a state is among those that are meant.
using Chosen = bool (*)(const State&);

/// Name, type and shape of every state that is chosen: is_weight, is_of_optimizer. Of what a rank has a part,
/// those of the whole.
std::vector<TensorSpec> specs_of(const StateBlock& block, Chosen chosen);

/// A rank among so many.
struct RankOf {
    std::int64_t rank = 0, ranks = 1;
};

/// The states that are chosen, to be written to a file: none of them is copied before its turn comes, and
/// then a piece at a time. `block` must live until then. What lies in parts is put together from all of
/// `ranks`, who read the same at the same time.
std::vector<TensorToWrite> tensors_of(const StateBlock& block, Chosen chosen, Ranks* ranks = nullptr);

/// The same of what a rank has: what all have whole is the first's to write, and elements [A, B) of state S,
/// a part, are a tensor of one axis called "S[A:B]".
std::vector<TensorToWrite> parts_of_states(const StateBlock& block, Chosen chosen, RankOf self);

/// States in files as `parts_of_states` names them, in one or in parts.
class SavedStates {
  public:
    /// The files must outlive it. Throws UserError for a name that ends like a part's but is not one.
    explicit SavedStates(std::span<const SafetensorsFile* const> files);

    bool has(const std::string& name) const { return pieces_.contains(name); }
    /// Throws UserError, naming the tensor, unless all of a state is there, once, of that type and shape.
    void require(const TensorSpec& state) const;
    /// Elements [first, first + count) of a state, whose place is `to`, a span of their bytes.
    void read(const TensorSpec& state, Shard part, std::span<std::byte> to) const;

  private:
    struct Piece {
        const SafetensorsFile* file;
        TensorView view;
        Shard part;
        bool is_whole;
    };
    std::string source_;                                ///< of the first file
    std::map<std::string, std::vector<Piece>> pieces_;  ///< in the order of their elements
};

inline bool is_of_optimizer(const State& state) { return state.kind == State::Kind::optimizer; }

}  // namespace mantissa
