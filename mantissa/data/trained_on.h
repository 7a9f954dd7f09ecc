// The memory of what a run was trained on, small enough for its checkpoint: so that a later run, with other
// files or another split, can say that it validates on something that was learnt before.
//
// Kept are marks: numbers that follow from the content of an item (an image, a run of tokens) and from
// nothing else. Those of an item are the same wherever it lies and whatever it is called. Of many items a
// sample is kept that is drawn without regard to the split.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/data/image_set.h"
#include "mantissa/data/token_stream.h"

namespace mantissa::inline v0 {

class TrainedOn {
  public:
    static constexpr std::size_t most_marks = 512;

    /// The images of a set: of a large one, the first by the places of their names (place_by_name).
    static TrainedOn images(const ImageSet& set);
    /// Runs of tokens in a part of a stream; it is read once.
    static TrainedOn tokens(const TokenStream& stream, TokenRange range);

    /// Makes it the memory of both.
    void add(const TrainedOn& other);

    /// The share of what is held out that was trained on before, and that is not trained on now, too; an
    /// estimate where only a sample is known. `now`: all that is trained on now.
    double share_of(const ImageSet& held_out, const TrainedOn& now) const;
    double share_of(const TokenStream& stream, TokenRange held_out, const TokenStream& trained,
                    TokenRange now) const;

    bool empty() const { return marks_.empty(); }
    /// Both ways of a text for a checkpoint. Throws UserError, beginning with `source`, for another text.
    std::string text() const;
    static TrainedOn of_text(std::string_view text, const std::string& source);

  private:
    /// Ascending and apart, the lowest ones of all.
    void keep(std::vector<std::uint64_t> marks);

    std::uint64_t items_ = 0;  ///< images or tokens that the marks are a sample of
    std::vector<std::uint64_t> marks_;
};

}  // namespace mantissa
