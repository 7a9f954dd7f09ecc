// Operands in panels: how they lie, and writing them. In each chunk of the depth panels of the kernels' size
// lie one after another, the last filled up with lines of zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/device/cpu/contraction/problem.h"

namespace mantissa::inline v0::on_cpu {

/// Lines (rows of a, columns of b) or depth, from `begin` on.
struct PanelRange {
    std::int64_t begin = 0;
    std::int64_t size = 0;
};

/// Part `index` of `whole` cut into parts of `part`; the last may be short or empty.
PanelRange part_of(std::int64_t whole, std::int64_t part, std::int64_t index);

/// An operand where it lies in memory.
struct OperandSource {
    const void* data = nullptr;
    MapFunction map = nullptr;  ///< of a mapped one
    const void* map_args = nullptr;
};

/// The place of some lines' panels in a chunk of the depth.
struct PanelChunk {
    PanelRange depth;
    std::byte* panels;
};

/// plain: panels are read soon, from L2. streaming: past the caches, where the kernels can do that; the
/// packing thread sets a fence before others read.
enum class PanelStores { plain, streaming };

struct GatheredTo;

/// One side of a problem as kernels want it: its layout's meaning for packing. A value without references to
/// the problem or the kernels it was made for.
class OperandPanels {
  public:
    OperandPanels(const ContractionProblem& problem, Side side, const ContractionKernels& kernels,
                  PanelStores stores = PanelStores::plain);

    std::int64_t panel_size() const { return panel_size_; }
    /// All lines, with the filling of the last panel.
    std::int64_t padded_lines() const;
    /// Writes the panels of `lines` x the depth of the chunk from where the operand lies in memory; `lines`
    /// begins with a panel.
    void pack(const OperandSource& source, std::int64_t entry, PanelRange lines,
              const PanelChunk& chunk) const;
    /// Says of each panel of `lines` which blocks of `depth` are zeros: bit i of its number, block i. Ends at
    /// the first other element, and is quick right behind pack(), while caches have the operand.
    void find_zeros(const void* source, std::int64_t entry, PanelRange lines, PanelRange depth,
                    std::uint64_t* zeros) const;
    /// Asks for the part `share` of `shares` of `lines` x `depth`, where it lies in memory, to come into L2.
    void prefetch(const void* source, std::int64_t entry, PanelRange lines, PanelRange depth,
                  std::int64_t share, std::int64_t shares) const;

  private:
    /// The place of parts of stored rows: rows `stride` elements apart, parts `part_bytes`.
    struct Staging {
        std::byte* parts;
        std::int64_t stride, element_bytes, part_bytes;
    };

    /// Packs `lines` of a part `depth` of the chunk's depth.
    void pack_part(const OperandSource& source, std::int64_t entry, PanelRange lines, PanelRange depth,
                   const PanelChunk& chunk) const;
    /// pack_part() of b in the order of ImagePairs.
    void pack_pairs(const PanelCopy& of_part, const OperandSource& source, std::int64_t entry,
                    PanelRange lines, PanelRange depth) const;
    /// pack_part() for operands that are mapped, gathered, widened or converted: a few stored rows at a
    /// time by way of their parts.
    void pack_staged(const OperandSource& source, std::int64_t entry, PanelRange lines, PanelRange depth,
                     const PanelChunk& chunk) const;
    /// The parts of `lines` x `depth`: part i of stored row r at parts[i] + r * stride elements. Whether all
    /// first parts of several are finite.
    bool stage(const OperandSource& source, std::int64_t entry, PanelRange lines, PanelRange depth,
               const Staging& staging) const;
    /// `lines` x `depth` of an operand that is mapped or gathered, stored rows `stride` elements apart.
    void make(const OperandSource& source, std::int64_t entry, PanelRange lines, PanelRange depth, void* to,
              std::int64_t stride) const;
    void gather_window(const OperandSource& source, std::int64_t entry, PanelRange rows, PanelRange columns,
                       const GatheredTo& to) const;
    /// Whether gathered elements can go straight into panels.
    bool gathers_blocks() const;
    /// pack_part() of a gathered operand, a whole chunk of the depth.
    void pack_blocks(const OperandSource& source, std::int64_t entry, PanelRange lines, PanelRange depth,
                     const PanelChunk& chunk) const;
    /// The result of mapping `lines` x `depth` of a mapped operand, stored rows `stride` elements apart.
    void map(const OperandSource& source, std::int64_t entry, PanelRange lines, PanelRange depth, void* to,
             std::int64_t stride) const;
    /// A coded operand, as numbers.
    void widen(const void* source, PanelRange rows, PanelRange columns, void* to, std::int64_t stride) const;
    /// Whether the operand's elements exist only once they are made.
    bool is_made() const { return layout_.mapped || layout_.window || has_codes(layout_.codes); }
    const std::byte* element(const void* source, std::int64_t entry, std::int64_t line,
                             std::int64_t depth) const;

    ContractionKernels kernels_;
    MatrixLayout layout_;
    std::int64_t inner_batch_, k_;
    bool is_a_;
    std::int64_t lines_, panel_size_;
    PanelStores stores_;
    std::int64_t words_of_group_ = 0;  ///< of ImagePairs, where b follows them
    PanelSource form_;
    PanelKernel kernel_;
    SplitKernel split_ = nullptr;  ///< where numbers in two parts are read from memory
};

}  // namespace mantissa::on_cpu
