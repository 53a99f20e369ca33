#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/job_spec.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/data/mixed_dataset.hpp"
#include "pipeline/data/tokenizer_choice.hpp"

namespace distilld {

/// Reads files of the spec's dataset; `field` (train, eval) names it in errors. Any thread, and the disk.
[[nodiscard]] Result<std::shared_ptr<const Dataset>> load_rows(const DatasetSpec& spec, const std::string& field,
                                                               const std::vector<std::string>& files,
                                                               const TokenizerChoice& choice,
                                                               std::uint32_t vocabulary_size);

/// For messages.
[[nodiscard]] std::string shown(const std::vector<std::string>& files);

/// Of the dataset that several teachers are asked about.
[[nodiscard]] Result<std::shared_ptr<const MixedDataset>> load_mixed_rows(const JobSpec& spec,
                                                                          const TokenizerChoice& choice,
                                                                          std::uint32_t vocabulary_size);

/// Of the tokenizer that read a dataset's text: of its tokenizer.json, or "bytes". Empty when there was no text.
[[nodiscard]] Result<std::string> tokenizer_hash(const Dataset& dataset, const TokenizerChoice& choice);

}  // namespace distilld
