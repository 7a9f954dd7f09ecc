// The state block: everything that lives from one run to the next, shared by all plans of a model.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mantissa/device/device.h"

namespace mantissa::inline v0 {

class StateBlock {
  public:
    /// Room for the states, all zero. `rank`: the rank whose part of a cut state is here (ranks/shard.h).
    StateBlock(Device& device, std::span<const State> states, std::int64_t rank = 0);
    /// As above, but states that `shared` has are shared, and only the others get room here. `shared` must
    /// outlive this.
    StateBlock(Device& device, std::span<const State> states, const StateBlock& shared);

    /// States that lie in `whole`: each is the state of its name, or, where that state's first extent is
    /// larger, entry `index` of it. `whole` must outlive this.
    StateBlock(Device& device, std::span<const State> states, const StateBlock& whole, std::int64_t index);

    /// Gives every state of its own its initial value, derived ones apart. The numbers of a state depend on
    /// the seed and its own name alone.
    void initialize(std::uint64_t seed);

    /// The address of a state. Throws UserError, naming the states, if there is none of that name.
    std::byte* address(const std::string& name) const;
    bool has(const std::string& name) const;
    const Type& type(const std::string& name) const;
    /// How many rows of zeros lie behind the state's own. `read` and `write` know nothing of them.
    std::int64_t zero_rows(const std::string& name) const;
    /// Whether the block has states of these names with fewer rows of zeros than asked for here.
    bool lacks_zeros(std::span<const State> states) const;

    /// Copies of a state's value in host memory. `write` and `read` throw InternalError if sizes differ. If a
    /// state is in parts, `read` gives this rank's part, with its filling, and `write` takes such a part or
    /// the whole. For codes and scales `write` takes these or FP32, which it quantises.
    std::vector<std::byte> read(const std::string& name) const;
    /// Reads bytes of a state from `begin` on; all must be in it.
    void read(const std::string& name, std::int64_t begin, std::span<std::byte> to) const;
    void write(const std::string& name, std::span<const std::byte> value);
    std::vector<float> read_f32(const std::string& name) const;
    /// Elements of a floating state from `first` on, in FP32, from any stored format.
    void read_numbers(const std::string& name, std::int64_t first, std::span<float> to) const;
    /// How often states were written from outside: values that follow from them may be out of date then.
    std::int64_t writes() const { return writes_; }
    /// Tells of a write to a state at its address.
    void note_write() { ++writes_; }
    /// Whether other values stand in the states for a while (train/trainer.h, AveragedWeights): no step may
    /// be made on them.
    bool is_lent() const { return is_lent_; }
    void lend(bool lent) { is_lent_ = lent; }
    /// While this is held, addresses of states of its own stay good, whatever becomes of the block.
    std::shared_ptr<const DeviceMemory> memory() const { return memory_; }

    /// Its own states, without the shared ones.
    const std::vector<State>& states() const { return states_; }
    std::int64_t bytes() const { return bytes_; }

  private:
    struct Entry {
        Type type;
        std::int64_t zero_rows;
        std::byte* address;
        std::int64_t whole_elements = 0;  ///< 0: it does not lie in parts
    };
    void allocate(std::span<const State> states);
    const Entry& entry(const std::string& name) const;

    void write_norms(const std::string& weight);

    Device& device_;
    const StateBlock* shared_ = nullptr;
    std::int64_t rank_ = 0;
    std::vector<State> states_;
    std::map<std::string, Entry> entries_;
    std::map<std::string, std::vector<std::string>> norms_;  ///< by weight: states that begin with its norms
    std::int64_t bytes_ = 0;
    std::int64_t writes_ = 0;
    bool is_lent_ = false;
    std::shared_ptr<DeviceMemory> memory_;
};

}  // namespace mantissa
