// A record of a run's training data, small enough for its checkpoint. A later run with other files or another
// split can warn if it validates on data that was learnt before.
//
// It keeps marks: numbers that follow only from the content of an item (an image, a run of tokens), wherever
// it is and whatever its name. For many items it keeps a sample that does not depend on the split.
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

    /// The images of a set; of a large set, the first ones by place_by_name.
    static TrainedOn images(const ImageSet& set);
    /// Runs of tokens in a part of a stream; it is read once.
    static TrainedOn tokens(const TokenStream& stream, TokenRange range);

    /// Adds another record to this one.
    void add(const TrainedOn& other);

    /// The share of validation data that was trained on before and is not training data now; an estimate if
    /// only a sample is known. `now`: all present training data.
    double share_of(const ImageSet& held_out, const TrainedOn& now) const;
    double share_of(const TokenStream& stream, TokenRange held_out, const TokenStream& trained,
                    TokenRange now) const;

    bool empty() const { return marks_.empty(); }
    /// Conversion to and from checkpoint text. Throws UserError, beginning with `source`, for other text.
    std::string text() const;
    static TrainedOn of_text(std::string_view text, const std::string& source);

  private:
    /// Keeps the lowest marks, ascending and distinct.
    void keep(std::vector<std::uint64_t> marks);

    std::uint64_t items_ = 0;  ///< images or tokens that the marks are a sample of
    std::vector<std::uint64_t> marks_;
};

}  // namespace mantissa
