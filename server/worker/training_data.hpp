#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/job_spec.hpp"
#include "pipeline/core/tokenizer_signs.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/data/mixed_dataset.hpp"
#include "pipeline/data/tokenizer_choice.hpp"

namespace distilld {

/// With what the files of a job's dataset are read.
struct DataReading {
    const JobSpec& spec;
    const TokenizerChoice& choice;
    std::uint32_t vocabulary_size = 0;
    std::function<void(const std::string&)> on_info;       ///< is told how far it has come, when it takes long
    std::function<bool()> cancelled;                       ///< asked now and then; true ends it, kind `cancelled`
    TokenCache* cache = nullptr;                           ///< keeps the tokens; null: they are held in memory
    std::function<void(const std::string&)> on_warning{};  ///< is told when rows have much less than was read
};

/// Reads the files that `entries` name (see find_data_files()); `field` (train, eval) names them in errors. On as many
/// threads as the student has, or one a core. Any thread, and the disk.
[[nodiscard]] Result<std::shared_ptr<const Dataset>> load_rows(const DataReading& reading, const std::string& field,
                                                               const std::vector<std::string>& entries);

/// For messages.
[[nodiscard]] std::string shown(const std::vector<std::string>& files);

/// The same of a dataset that the spec's several teachers are asked about; `every_teacher`: each of them has rows
/// there.
[[nodiscard]] Result<std::shared_ptr<const MixedDataset>> load_mixed_rows(const DataReading& reading,
                                                                          const std::string& field,
                                                                          const std::vector<std::string>& entries,
                                                                          bool every_teacher);

/// What a TokenCache is told of who reads: this program and the files of the tokenizer.
[[nodiscard]] Result<std::string> reader_identity(const TokenizerChoice& choice);

/// Of the tokenizer that read a dataset's text: of its tokenizer.json, or "bytes", with its files or without. Empty
/// when there was no text.
[[nodiscard]] Result<std::string> tokenizer_hash(const Dataset& dataset, const TokenizerChoice& choice);

/// What a teacher's tokenizer is compared with. Nothing where none read the data, unless its files are named or lie
/// beside the student.
[[nodiscard]] TokenizerSigns tokenizer_signs(const Dataset& dataset, const TokenizerChoice& choice);

}  // namespace distilld
