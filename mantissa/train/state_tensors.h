// States as file formats see them: described, and read piece by piece wherever they are stored.
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

/// Whether a state is selected.
using Chosen = bool (*)(const State&);

/// Name, type and whole shape of every selected state (is_weight, is_of_optimizer), also where a rank holds a
/// part.
std::vector<TensorSpec> specs_of(const StateBlock& block, Chosen chosen);

/// A rank among so many.
struct RankOf {
    std::int64_t rank = 0, ranks = 1;
};

/// The selected states, to be written to a file. They are copied a piece at a time while the file is written;
/// `block` must live until then. Sharded states are gathered from all `ranks`, which read the same states at
/// the same time.
std::vector<TensorToWrite> tensors_of(const StateBlock& block, Chosen chosen, Ranks* ranks = nullptr);

/// This rank's part of the selected states. The first rank writes the states that all hold whole. Elements
/// [A, B) of a sharded state S are a tensor of one axis called "S[A:B]".
std::vector<TensorToWrite> parts_of_states(const StateBlock& block, Chosen chosen, RankOf self);

/// States in files with the names of `parts_of_states`, whole or in parts.
class SavedStates {
  public:
    /// The files must outlive it. Throws UserError for a name that ends like a part's but is not one.
    explicit SavedStates(std::span<const SafetensorsFile* const> files);

    bool has(const std::string& name) const { return pieces_.contains(name); }
    /// Throws UserError, naming the tensor, unless the files hold all of a state once, with its type and
    /// shape.
    void require(const TensorSpec& state) const;
    /// Reads elements [first, first + count) of a state; `to` has room for their bytes.
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
