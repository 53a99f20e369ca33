#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/job_spec.hpp"
#include "base/error.hpp"
#include "pipeline/core/tokenizer_signs.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/data/mixed_dataset.hpp"
#include "pipeline/data/teacher_tokenizer.hpp"
#include "pipeline/data/tokenizer_choice.hpp"

namespace distilld {

/// How to read the files of a job's dataset.
struct DataReading {
    const JobSpec& spec;
    const TokenizerChoice& choice;
    std::uint32_t vocabulary_size = 0;
    const TeacherTokenizer* teacher = nullptr;             ///< the teacher's tokenizer; null: the student's
    std::function<void(const std::string&)> on_info;       ///< gets progress reports if it takes long
    std::function<bool()> cancelled;                       ///< called now and then; true ends it with kind `cancelled`
    TokenCache* cache = nullptr;                           ///< stores the tokens; null: keep them in memory
    std::function<void(const std::string&)> on_warning{};  ///< called when rows have much less than was read
};

/// Reads the files that `entries` name (see find_data_files()); `field` (train, eval, prompts) names them in errors.
/// Uses as many threads as the student, or one per core. Any thread; reads the disk.
[[nodiscard]] Result<std::shared_ptr<const Dataset>> load_rows(const DataReading& reading, const std::string& field,
                                                               const std::vector<std::string>& entries);

/// The rows of /dataset/train, or the prompts of /rollout.
[[nodiscard]] Result<std::shared_ptr<const Dataset>> load_training_rows(const DataReading& reading);

/// For messages.
[[nodiscard]] std::string shown(const std::vector<std::string>& files);

/// The same for a dataset with several teachers; `every_teacher`: each teacher must have rows.
[[nodiscard]] Result<std::shared_ptr<const MixedDataset>> load_mixed_rows(const DataReading& reading,
                                                                          const std::string& field,
                                                                          const std::vector<std::string>& entries,
                                                                          bool every_teacher);

/// The tokenizer of teacher.tokenizer; null: it is the student's. Errors name the field.
[[nodiscard]] Result<std::shared_ptr<const TeacherTokenizer>> teacher_tokenizer_of(const JobSpec& spec,
                                                                                   const TokenizerChoice& student);

/// Identifies the reader to a TokenCache: this program and the files of the tokenizers; `teacher` may be null.
[[nodiscard]] Result<std::string> reader_identity(const TokenizerChoice& choice, const TeacherTokenizer* teacher);

/// Hash of the tokenizer that read a dataset's text: of its tokenizer.json, or "bytes", with or without its files.
/// Empty if there was no text.
[[nodiscard]] Result<std::string> tokenizer_hash(bool has_text, const TokenizerChoice& choice);

/// What a teacher's tokenizer is compared with. Empty if no tokenizer read the data, unless its files are named or lie
/// beside the student.
[[nodiscard]] TokenizerSigns tokenizer_signs(bool has_text, const TokenizerChoice& choice);

}  // namespace distilld
