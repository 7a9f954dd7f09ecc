#include "cli/training_data.h"

#include "mantissa/data/synthetic_images.h"
#include "mantissa/data/text_windows.h"

namespace mantissa::cli {

std::unique_ptr<BatchSource> text_batches(const Corpus& corpus, TokenRange range, std::int64_t sequence,
                                          const BatchOptions& options) {
    if (!corpus.ends) return std::make_unique<TextWindows>(corpus.stream, range, sequence, options);
    return std::make_unique<PackedDocuments>(corpus.stream, *corpus.ends, range, sequence, options);
}

TrainingData open_training_data(const RunOptions& options, const nn::Model& model, std::int64_t batch,
                                CorpusOptions::Untokenized untokenized) {
    TrainingData data;
    if (nn::is_image_model(options.model)) {
        data.batches =
            std::make_unique<SyntheticImages>(nn::image_sizes(options.model, options.pictures), options.seed);
        data.description = data.batches->description();
        return data;
    }
    data.corpus = std::make_unique<Corpus>(open_corpus(options, untokenized));
    data.description = data.corpus->description;
    data.batches =
        text_batches(*data.corpus, data.corpus->stream.all(), model.units_per_example, {.batch = batch});
    return data;
}

}  // namespace mantissa::cli
