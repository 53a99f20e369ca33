#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "api/job_spec.hpp"
#include "base/error.hpp"
#include "pipeline/core/tokenizer_signs.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/data/teacher_tokenizer.hpp"
#include "pipeline/store/manifest.hpp"
#include "pipeline/teacher/document_teacher.hpp"
#include "pipeline/teacher/store_teacher.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// The data that a run stores answers for.
struct StoredData {
    const Dataset* dataset = nullptr;                   ///< the training data; answers are to what it is asked_about()
    std::uint32_t sequence_length = 0;                  ///< of what the dataset is asked_about(); see asked_length()
    std::string tokenizer_hash;                         ///< of the tokenizer that read the text; empty: no text
    std::uint32_t vocabulary = 0;                       ///< of the student
    bool whole_documents = false;                       ///< a row is one document, or several kept apart
    TokenizerSigns tokenizer{};                         ///< of the tokenizer of both; no name: there is none
    std::shared_ptr<const TokenAlignment> alignment{};  ///< the fields above are the teacher's; null: those of both
};

/// Takes what the teacher's own tokenizer decides; null: it has the student's.
void use_tokenizer(StoredData& data, const TeacherTokenizer* teacher);

/// Maximum input positions of a row that the teacher reads.
[[nodiscard]] std::uint32_t asked_length(const DatasetSpec& spec, const Dataset& rows);

/// How the teacher's own documents are read; empty: there are none. `rows` must outlive it.
[[nodiscard]] ReadDocument read_of_teacher(const Dataset& rows);

/// Entries stored per position for a teacher that sends logits, if the spec does not set top_k.
inline constexpr std::uint32_t kDefaultStoredEntries = 64;

/// The store that the spec describes, for the teacher that was probed.
[[nodiscard]] StoreManifest wanted_manifest(const TeacherSpec& spec, const StoredData& data, const TeacherInfo& info);

/// A writer that has stored nothing for this long is assumed dead by the other writers of the store. Longer than any
/// answer may take.
[[nodiscard]] std::chrono::nanoseconds lease_expiry(const TeacherSpec& spec);

/// What a student that trains on the store must find in it.
[[nodiscard]] StoreWish wish_of(const TeacherSpec& spec, const StoredData& data);

/// Whether an existing store has the format of the spec; the error names the field.
[[nodiscard]] Result<void> check_stored_format(const StoreManifest& stored, const TeacherSpec& spec);

}  // namespace distilld
