#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/job_spec.hpp"
#include "pipeline/core/tokenizer_signs.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/store/manifest.hpp"
#include "pipeline/teacher/store_teacher.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// What a run has answers stored for.
struct StoredData {
    const Dataset* dataset = nullptr;  ///< which is trained on; answers are to what it is asked_about()
    std::uint32_t sequence_length = 0;
    std::string tokenizer_hash;    ///< of what read its text; empty: it has none
    std::uint32_t vocabulary = 0;  ///< of the student
    bool whole_documents = false;  ///< a row is one, or several kept apart
    TokenizerSigns tokenizer{};    ///< of the student; without a name: it has none
};

/// Entries of a position that are kept of a teacher that sends logits, where the spec names no top_k.
inline constexpr std::uint32_t kDefaultStoredEntries = 64;

/// The store that the spec describes, of the teacher that the probe has found.
[[nodiscard]] StoreManifest wanted_manifest(const TeacherSpec& spec, const StoredData& data, const TeacherInfo& info);

/// A writer that has stored nothing for so long is taken for dead by those that write the store with it: longer than
/// any answer may take.
[[nodiscard]] std::chrono::nanoseconds lease_expiry(const TeacherSpec& spec);

/// What a student that trains on the store has to find in it.
[[nodiscard]] StoreWish wish_of(const TeacherSpec& spec, const StoredData& data);

/// Whether what the spec says of the format holds for a store that is there; the error names the field.
[[nodiscard]] Result<void> check_stored_format(const StoreManifest& stored, const TeacherSpec& spec);

}  // namespace distilld
