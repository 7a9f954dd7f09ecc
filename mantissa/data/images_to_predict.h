// The images that a network is to tell apart: files, and folders with all that they hold.
#pragma once

#include <string>
#include <vector>

#include "mantissa/data/image_set.h"

namespace mantissa::inline v0 {

struct ImagesToPredict {
    ImageSet set;
    std::string left_out = {};  ///< of folders, in words; empty: nothing
};

/// In the order of the paths, of a folder in the order of names. A image in a folder that is named like a
/// class counts as one of that class, the innermost such folder of its path; others have unknown_class. A
/// folder with CIFAR-10's files stands for its test_batch.bin, and then is the only path. Throws UserError
/// that names a path that is not there, or a folder without images.
ImagesToPredict images_to_predict(const std::vector<std::string>& paths,
                                  const std::vector<std::string>& classes);

}  // namespace mantissa
